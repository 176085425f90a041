#include "data/token_file.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "base/hash.h"
#include "base/testing.h"

namespace denseformer {
namespace {

template <class T>
void WriteTokens(const std::string& path, const std::vector<T>& tokens,
                 const std::vector<int32_t>& header = {}) {
  OutputFile file(path);
  file.Write(header.data(), header.size() * sizeof(int32_t));
  file.Write(tokens.data(), tokens.size() * sizeof(T));
  file.Close();
}

std::vector<int32_t> LlmcHeader(int32_t magic, int32_t version, int32_t count) {
  std::vector<int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return header;
}

std::vector<int32_t> ReadAll(const TokenFile& file) {
  std::vector<int32_t> tokens(static_cast<size_t>(file.size()));
  file.Read(0, file.size(), tokens.data());
  return tokens;
}

TEST(TokenFileTest, HeaderlessUint16) {
  const TemporaryDirectory dir;
  WriteTokens<uint16_t>(dir / "a.bin", {1, 2, 65535, 50256});
  const TokenFile file(dir / "a.bin");
  EXPECT_EQ(file.type(), TokenType::kUint16);
  EXPECT_FALSE(file.has_llmc_header());
  EXPECT_EQ(ReadAll(file), (std::vector<int32_t>{1, 2, 65535, 50256}));
}

TEST(TokenFileTest, HeaderlessUint32IsRecognized) {
  const TemporaryDirectory dir;
  WriteTokens<uint32_t>(dir / "a.bin", {1, 70000, 300, 128000});
  EXPECT_EQ(TokenFile(dir / "a.bin").type(), TokenType::kUint32);
  EXPECT_EQ(ReadAll(TokenFile(dir / "a.bin")), (std::vector<int32_t>{1, 70000, 300, 128000}));
  EXPECT_EQ(TokenFile(dir / "a.bin", TokenType::kUint16).size(), 8);
}

TEST(TokenFileTest, LlmcHeaders) {
  const TemporaryDirectory dir;
  WriteTokens<uint16_t>(dir / "a.bin", {5, 6, 7}, LlmcHeader(20240520, 1, 3));
  const TokenFile narrow(dir / "a.bin");
  EXPECT_TRUE(narrow.has_llmc_header());
  EXPECT_EQ(ReadAll(narrow), (std::vector<int32_t>{5, 6, 7}));
  WriteTokens<uint32_t>(dir / "b.bin", {5, 100000}, LlmcHeader(20240801, 7, 2));
  EXPECT_EQ(ReadAll(TokenFile(dir / "b.bin")), (std::vector<int32_t>{5, 100000}));
  WriteTokens<uint16_t>(dir / "c.bin", {5, 6}, LlmcHeader(20240520, 1, 3));
  EXPECT_EQ(ErrorOf([&] { TokenFile(dir / "c.bin"); }),
            dir / "c.bin" +
                ": its llm.c header counts 3 tokens, which makes 1030 bytes, but the "
                "file has 1028");
}

TEST(TokenFileTest, BadFiles) {
  const TemporaryDirectory dir;
  WriteTokens<uint8_t>(dir / "odd.bin", {1, 2, 3});
  EXPECT_EQ(ErrorOf([&] { TokenFile(dir / "odd.bin"); }),
            dir / "odd.bin" + ": 3 bytes, expected a multiple of 2 for uint16 tokens");
  WriteTokens<uint8_t>(dir / "empty.bin", {});
  EXPECT_EQ(ErrorOf([&] { TokenFile(dir / "empty.bin"); }), dir / "empty.bin" + ": no tokens");
  EXPECT_EQ(ErrorOf([&] { TokenFile(dir / "none.bin"); }),
            "cannot open " + (dir / "none.bin") + ": No such file or directory");
}

TEST(TokenFileTest, TextIsNotTakenForTokens) {
  const TemporaryDirectory dir;
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "caf\u00e9 au lait\n";
  for (const std::string& content : {text, text.substr(0, 20)}) {
    WriteFileAtomic(dir / "a.txt", content);
    EXPECT_NE(ErrorOf([&] { TokenFile(dir / "a.txt"); }).find("looks like text, expected tokens"),
              std::string::npos);
    // Whoever says what the tokens are is believed.
    EXPECT_EQ(TokenFile(dir / "a.txt", TokenType::kUint16).size(),
              static_cast<int64_t>(content.size()) / 2);
  }
}

TEST(TokenFileTest, MetaGivesTypeAndSize) {
  const TemporaryDirectory dir;
  WriteTokens<uint32_t>(dir / "train.bin", {1, 2, 3});
  DataMeta meta;
  meta.token_type = TokenType::kUint32;
  meta.vocab_size = 70000;
  meta.end_of_text = 2;
  meta.files["train.bin"] = {1, 10, 3, HashFile(dir / "train.bin")};
  WriteFileAtomic(dir / "meta.json", MetaToJson(meta));
  const TokenFile file(dir / "train.bin");
  EXPECT_EQ(file.type(), TokenType::kUint32);
  EXPECT_EQ(file.size(), 3);
  EXPECT_EQ(file.meta()->vocab_size, 70000);
  EXPECT_EQ(file.ScanTokens(2).end_of_text_count, 1);

  WriteTokens<uint32_t>(dir / "train.bin", {1, 2});
  EXPECT_EQ(ErrorOf([&] { TokenFile(dir / "train.bin"); }),
            dir / "train.bin" + ": 2 tokens, expected 3 as in meta.json; prepare it again");
  WriteFileAtomic(dir / "meta.json", "{\"format\": \"denseformer-tokens\"}");
  EXPECT_EQ(ErrorOf([&] { TokenFile(dir / "train.bin"); }),
            dir / "meta.json" + ": 'version' is missing; prepare the data again");
  const std::pair<const char*, const char*> wrong[] = {
      {"\"vocab_size\": \"x\"", "'vocab_size' is \"x\", expected a whole number"},
      {"\"vocab_size\": 1e30", "'vocab_size' is 1e+30, expected a whole number"},
      {"\"vocab_size\": 7.5", "'vocab_size' is 7.5, expected a whole number"},
      {"\"vocab_size\": 1e999", "not JSON: the number '1e999' is beyond the range of double"},
      {"\"vocab_size\": 0", "'vocab_size' is 0, expected a whole number of at least 1"},
      {"\"version\": \"x\"", "'version' is \"x\", expected a whole number"},
      {"\"token_type\": \"uint8\"", "token type: got 'uint8', expected uint16 or uint32; prepare"},
      {"\"token_type\": 16", "'token_type' is 16, expected a string"},
      {"\"vocab_size\": 9, \"end_of_text\": 1, \"tokenizer\": {\"file\": \"\", \"hash\": \"\"}, "
       "\"files\": 3",
       "'files' is 3, expected an object"},
      {"\"vocab_size\": 9, \"end_of_text\": 1, \"tokenizer\": 3",
       "'tokenizer' is 3, expected an object"},
  };
  for (const auto& [entry, message] : wrong) {
    WriteFileAtomic(dir / "meta.json",
                    std::string("{\"format\": \"denseformer-tokens\", \"version\": 1, "
                                "\"token_type\": \"uint16\", ") +
                        entry + "}");
    const std::string error = ErrorOf([&] { TokenFile(dir / "train.bin"); });
    EXPECT_EQ(error.rfind(dir / "meta.json: " + message, 0), 0u) << error;
  }
  WriteFileAtomic(dir / "meta.json", "{\"something\": \"else\"}");
  EXPECT_FALSE(TokenFile(dir / "train.bin").meta().has_value());
}

TEST(TokenFileTest, TokenOutsideTheVocabularyIsFound) {
  const TemporaryDirectory dir;
  std::vector<uint16_t> tokens(300000);
  std::iota(tokens.begin(), tokens.end(), uint16_t{0});
  for (uint16_t& token : tokens) token %= 1000;
  tokens[250001] = 1001;
  tokens[270000] = 2000;
  WriteTokens(dir / "a.bin", tokens);
  const TokenFile file(dir / "a.bin");
  EXPECT_EQ(file.ScanTokens(-1).largest, 2000u);
  EXPECT_EQ(file.ScanTokens(-1).position_of_largest, 270000);
  file.CheckVocabulary(2001);
  EXPECT_EQ(ErrorOf([&] { file.CheckVocabulary(1000); }),
            dir / "a.bin" +
                ": token 1001 at position 250001 is outside the vocabulary of 1000 "
                "(prepared with another tokenizer?)");
}

}  // namespace
}  // namespace denseformer
