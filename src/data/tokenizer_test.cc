#include "denseformer/tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/file.h"
#include "base/parallel.h"
#include "base/random.h"
#include "base/testing.h"
#include "data/bpe.h"
#include "data/byte_alphabet.h"
#include "data/split.h"
#include "data/tokenizer_files.h"

namespace denseformer {
namespace {

using Ids = std::vector<int32_t>;

// Ġ is the space. Ids: 256 " t", 257 "he", 258 " the", 259 "aa", 260 "aaaa", 261 "re", 262 end.
constexpr char kMerges[] = "#version: 0.2\nĠ t\nh e\nĠt he\na a\naa aa\nr e\n";

Tokenizer Small() { return Tokenizer(ReadMerges(kMerges, "small")); }

// BPE as it is defined: the best pair of the whole piece, all its occurrences, again.
Ids EncodeByDefinition(const TokenizerData& data, std::string_view text) {
  Ids ids;
  SplitText(text, [&](const char* piece, size_t length) {
    Ids word;
    for (size_t i = 0; i < length; ++i) {
      word.push_back(data.byte_ids[static_cast<unsigned char>(piece[i])]);
    }
    for (const BpeMerge& merge : data.merges) {
      Ids next;
      for (size_t i = 0; i < word.size(); ++i) {
        if (i + 1 < word.size() && word[i] == merge.left && word[i + 1] == merge.right) {
          next.push_back(merge.result);
          ++i;
        } else {
          next.push_back(word[i]);
        }
      }
      word = next;
    }
    ids.insert(ids.end(), word.begin(), word.end());
  });
  return ids;
}

std::string RandomBytes(Random& random, size_t length) {
  std::string text;
  while (text.size() < length) text += static_cast<char>(random.Next32());
  return text;
}

std::string RandomUnicode(Random& random, size_t characters) {
  std::string text;
  for (size_t i = 0; i < characters; ++i) {
    const auto c = static_cast<int32_t>(random.Below(random.Below(2) ? 0x250 : 0xD800));
    char utf8[4];
    text.append(utf8, static_cast<size_t>(EncodeUtf8(c, utf8)));
  }
  return text;
}

TEST(TokenizerTest, MergesByRank) {
  const Tokenizer tokenizer = Small();
  EXPECT_EQ(tokenizer.vocab_size(), 263);
  EXPECT_EQ(tokenizer.end_of_text(), 262);
  // GPT-2's numbers of bytes: '!' is 0, so 'a' is 64, 'x' 87, ' ' 220, '\n' 198.
  EXPECT_EQ(tokenizer.Encode(" the"), Ids{258});
  EXPECT_EQ(tokenizer.Encode("he the\n"), (Ids{257, 258, 198}));
  EXPECT_EQ(tokenizer.Encode("aaaaaaa"), (Ids{260, 259, 64}));
  EXPECT_EQ(tokenizer.Encode(""), Ids{});
  EXPECT_EQ(tokenizer.Decode(Ids{258, 198}), " the\n");
  EXPECT_EQ(tokenizer.TokenBytes(258), " the");
  EXPECT_EQ(tokenizer.TokenBytes(263), "");
  EXPECT_EQ(tokenizer.TextLength(258), 4);
  EXPECT_EQ(tokenizer.TextLength(262), 0);
}

TEST(TokenizerTest, SpecialTokensOnlyWhereAskedFor) {
  const Tokenizer tokenizer = Small();
  const std::string text = "a<|endoftext|>the<|endoftext|>";
  const Ids plain = tokenizer.Encode(text);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), 262), 0);
  EXPECT_EQ(tokenizer.Decode(plain), text);
  const Ids special = tokenizer.Encode(text, SpecialTokens::kRecognize);
  EXPECT_EQ(special, (Ids{64, 262, 83, 257, 262}));
  EXPECT_EQ(tokenizer.Decode(special), text);
}

TEST(TokenizerTest, LongestOfSeveralSpecialTokens) {
  TokenizerData data = BareBytes();
  for (const char* name : {"<a>", "<a>b", "<c>"}) {
    data.special[name] = static_cast<int32_t>(data.tokens.size());
    data.tokens.push_back(name);
  }
  const Tokenizer tokenizer(data);
  EXPECT_EQ(tokenizer.Encode("<c><a><a>b<c", SpecialTokens::kRecognize),
            (Ids{258, 256, 257, '<', 'c'}));
  EXPECT_EQ(tokenizer.Encode("", SpecialTokens::kRecognize), Ids{});
}

TEST(TokenizerTest, UnknownIdNamesItsPosition) {
  EXPECT_EQ(ErrorOf([] {
              Small().Decode(Ids{1, 2, 263});
            }),
            "decode: token 263 at position 2 is not in the vocabulary of 263");
  EXPECT_EQ(ErrorOf([] { Small().Decode(Ids{-1}); }),
            "decode: token -1 at position 0 is not in the vocabulary of 263");
}

TEST(TokenizerTest, Bytes) {
  const Tokenizer tokenizer = Tokenizer::Bytes();
  EXPECT_EQ(tokenizer.vocab_size(), 257);
  EXPECT_EQ(tokenizer.end_of_text(), 256);
  EXPECT_EQ(tokenizer.Encode("a \xff"), (Ids{'a', ' ', 255}));
  EXPECT_EQ(Tokenizer::Load("bytes").Hash(), tokenizer.Hash());
}

TEST(TokenizerTest, EncodesAsDefinedShortAndLong) {
  // Merges over two letters, so that every order of merges occurs.
  std::string merges;
  Random random(3);
  std::vector<std::string> tokens = {"a", "b"};
  while (tokens.size() < 60) {
    const std::string left = tokens[random.Below(tokens.size())];
    const std::string right = tokens[random.Below(tokens.size())];
    if (std::count(tokens.begin(), tokens.end(), left + right) != 0) continue;
    if (left.size() + right.size() > 24) continue;
    tokens.push_back(left + right);
    merges += left + " " + right + "\n";
  }
  const Tokenizer tokenizer(ReadMerges(merges, "letters"));
  for (size_t length = 0; length < 300; ++length) {
    std::string text;
    while (text.size() < length)
      text += random.Below(5) == 0 ? "aaaa" : random.Below(2) ? "a" : "b";
    ASSERT_EQ(tokenizer.Encode(text), EncodeByDefinition(tokenizer.data(), text)) << text;
  }
}

TEST(TokenizerTest, RoundTripsAnything) {
  const Tokenizer small = Small(), bytes = Tokenizer::Bytes();
  Random random(1);
  for (int round = 0; round < 300; ++round) {
    const std::string text = round % 2 ? RandomBytes(random, random.Below(3000))
                                       : RandomUnicode(random, random.Below(1000));
    ASSERT_EQ(small.Decode(small.Encode(text)), text);
    ASSERT_EQ(bytes.Decode(bytes.Encode(text)), text);
    ASSERT_EQ(small.Encode(text), EncodeByDefinition(small.data(), text));
  }
}

TEST(TokenizerTest, ThreadsDoNotChangeTheIds) {
  const Tokenizer tokenizer = Small();
  Random random(5);
  std::string text;
  while (text.size() < 3 << 20) {
    text += random.Below(50) == 0 ? RandomUnicode(random, 20) : random.Below(3) ? " the" : "here\n";
    // A stretch without any place to cut, longer than a part.
    if (text.size() > 1 << 20 && text.size() < (1 << 20) + 100) text += std::string(700000, 'a');
  }
  const int threads = NumThreads();
  SetNumThreads(1);
  const Ids one = tokenizer.Encode(text);
  SetNumThreads(4);
  const Ids four = tokenizer.Encode(text);
  SetNumThreads(threads);
  EXPECT_TRUE(one == four);
  EXPECT_TRUE(tokenizer.Decode(one) == text);
}

TEST(TokenizerTest, MayBeSharedByThreads) {
  const Tokenizer tokenizer = Small();
  std::string text;
  for (int i = 0; i < 5000; ++i) text += i % 7 ? " the" : "\u0401\u3042";
  const Ids expected = tokenizer.Encode(text);
  std::vector<std::thread> threads;
  std::vector<int> equal(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] { equal[i] = tokenizer.Encode(text) == expected; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, std::vector<int>(4, 1));
}

TEST(TokenizerTest, WorkIsLinearInOneLongWord) {
  const TokenizerData data = ReadMerges(kMerges, "small");
  const BpeTable table(data);
  for (const size_t length : {size_t{1} << 16, size_t{1} << 20}) {
    BpeEncoder encoder(table);
    Ids ids;
    encoder.Encode(std::string(length, 'a'), &ids);
    EXPECT_EQ(ids.size(), length / 4);
    EXPECT_LE(encoder.long_merge_steps(), static_cast<int64_t>(3 * length));
  }
}

TEST(TokenizerFilesTest, SavedAndLoadedEncodesTheSame) {
  const TemporaryDirectory dir;
  const Tokenizer tokenizer = Small();
  tokenizer.Save(dir / "tokenizer.json");
  Random random(2);
  for (const std::string& path : {dir.path(), dir / "tokenizer.json"}) {
    const Tokenizer loaded = Tokenizer::Load(path);
    EXPECT_EQ(loaded.Hash(), tokenizer.Hash());
    EXPECT_EQ(loaded.end_of_text(), 262);
    const std::string text = RandomUnicode(random, 2000) + "the aaaa here";
    EXPECT_EQ(loaded.Encode(text), tokenizer.Encode(text));
  }
}

TEST(TokenizerFilesTest, BothFormsOfMerges) {
  nlohmann::json json = nlohmann::json::parse(Small().ToJson());
  EXPECT_EQ(json["model"]["merges"][2], "Ġt he");
  for (nlohmann::json& merge : json["model"]["merges"]) {
    const std::string pair = merge;
    const size_t space = pair.find(' ');
    merge = {pair.substr(0, space), pair.substr(space + 1)};
  }
  EXPECT_EQ(Tokenizer::FromJson(json.dump(), "pairs").Hash(), Small().Hash());
}

TEST(TokenizerFilesTest, VocabAndMergesKeepTheirIds) {
  const TemporaryDirectory dir;
  nlohmann::json vocab;
  const TokenizerData small = ReadMerges(kMerges, "small");
  for (size_t id = 0; id < 262; ++id) vocab[ToByteAlphabet(small.tokens[id])] = 300 - id;
  vocab["<|endoftext|>"] = 7;
  WriteFileAtomic(dir / "vocab.json", vocab.dump());
  WriteFileAtomic(dir / "merges.txt", kMerges);
  for (const std::string& path : {dir.path(), dir / "vocab.json", dir / "merges.txt"}) {
    const Tokenizer tokenizer = Tokenizer::Load(path);
    EXPECT_EQ(tokenizer.vocab_size(), 301);
    EXPECT_EQ(tokenizer.end_of_text(), 7);
    EXPECT_EQ(tokenizer.Encode(" the"), Ids{300 - 258});
  }
}

TEST(TokenizerFilesTest, WhatIsNoTokenizerSaysSo) {
  const TemporaryDirectory dir;
  const auto error = [&](const std::string& content) {
    WriteFileAtomic(dir / "x", content);
    return ErrorOf([&] { Tokenizer::Load(dir / "x"); });
  };
  const auto json_error = [&](const char* pointer, const nlohmann::json& value) {
    nlohmann::json json = nlohmann::json::parse(Small().ToJson());
    json[nlohmann::json::json_pointer(pointer)] = value;
    return ErrorOf([&] { Tokenizer::FromJson(json.dump(), "x"); });
  };
  const auto contains = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  contains(ErrorOf([&] { Tokenizer::Load(dir.path()); }), "no tokenizer found");
  contains(ErrorOf([&] { Tokenizer::Load(dir / "none"); }), "No such file");
  contains(error(""), "not a tokenizer file");
  contains(error("\x01\x02\xff\xfe"), "not a tokenizer file");
  contains(error("{\"a\""), "not valid JSON");
  contains(error("{\"a\": 1}"), "neither a tokenizer.json nor with a merges.txt");
  contains(error("#version: 0.2\nh e\nhe\n"), "line 3 is 'he', expected two tokens");
  contains(error("#version: 0.2\nh e\nhe xq\n"), "needs a token that the vocabulary lacks");
  contains(error("h e\nh e\n"), "two merges make the token 'he'");
  contains(json_error("/model/type", "Unigram"), "no BPE model");
  contains(json_error("/pre_tokenizer/type", "Metaspace"),
           "pre_tokenizer is of type \"Metaspace\"");
  contains(json_error("/pre_tokenizer/add_prefix_space", true), "add_prefix_space");
  contains(json_error("/normalizer", {{"type", "NFC"}}), "it has a normalizer");
  contains(json_error("/model/ignore_merges", true), "model.ignore_merges is true");
  contains(json_error("/model/vocab/he", -1), "the id of token 'he' is -1");
  contains(json_error("/model/vocab/he", 5), "two tokens with the id 5");
  contains(json_error("/model/vocab", nlohmann::json::object()),
           "no token for the single byte 0x00");
  contains(json_error("/model/merges/0", 3), "not a tokenizer.json");
}

TEST(TokenizerReferenceTest, Gpt2Texts) {
  const std::string folder = SharedData("gpt2");
  if (folder.empty()) GTEST_SKIP() << "no reference data (DENSEFORMER_SHARED)";
  const TemporaryDirectory dir;
  const Tokenizer tokenizer = Tokenizer::Load(folder + "/vocab.bpe");
  const Tokenizer alone(ReadMerges(ReadFile(folder + "/vocab.bpe"), "vocab.bpe"));
  EXPECT_EQ(alone.Hash(), tokenizer.Hash());
  EXPECT_EQ(tokenizer.vocab_size(), 50257);
  EXPECT_EQ(tokenizer.end_of_text(), 50256);
  tokenizer.Save(dir / "tokenizer.json");
  const Tokenizer loaded = Tokenizer::Load(dir / "tokenizer.json");
  std::ifstream lines(folder + "/reference.jsonl");
  std::string line;
  int count = 0;
  while (std::getline(lines, line)) {
    const nlohmann::json entry = nlohmann::json::parse(line);
    const std::string text = entry["text"];
    const Ids ids = entry["ids"];
    EXPECT_EQ(tokenizer.Encode(text), ids) << text;
    EXPECT_EQ(loaded.Encode(text), ids) << text;
    EXPECT_EQ(tokenizer.Decode(ids), text);
    ++count;
  }
  EXPECT_EQ(count, 116);
}

}  // namespace
}  // namespace denseformer
