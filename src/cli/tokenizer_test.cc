// denseformer tokenizer, from the outside.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/testing.h"
#include "cli/run_program.h"

namespace denseformer {
namespace {

using nlohmann::json;

constexpr char kText[] = "the cat and the hat and the bat: the end of the cat\n";

TEST(TokenizerCommandTest, TrainEncodeDecode) {
  const TemporaryDirectory dir;
  WriteFileAtomic(dir / "a.txt", kText);
  const std::string path = dir / "tokenizer.json";
  const ProgramResult trained = RunProgram({"tokenizer", "train", "--vocab", "265", "--output",
                                            path, dir / "a.txt", "--json", "--quiet"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_EQ(trained.err, "");
  EXPECT_EQ(json::parse(trained.out)["vocab_size"], 265);

  const std::string text = std::string(kText) + "\xff\n<|endoftext|> caf\u00e9";
  const ProgramResult encoded = RunProgram({"tokenizer", "encode", path}, text);
  ASSERT_EQ(encoded.status, 0) << encoded.err;
  EXPECT_EQ(encoded.out.find("264"), std::string::npos);
  const ProgramResult decoded = RunProgram({"tokenizer", "decode", dir.path()}, encoded.out);
  EXPECT_EQ(decoded.out, text);

  const ProgramResult special = RunProgram({"tokenizer", "encode", path, "--special"}, text);
  EXPECT_NE(special.out.find("264"), std::string::npos);
  EXPECT_EQ(RunProgram({"tokenizer", "decode", path}, special.out).out, text);

  const ProgramResult info = RunProgram({"tokenizer", "info", path, "--json"});
  EXPECT_EQ(json::parse(info.out)["special_tokens"]["<|endoftext|>"], 264);
  EXPECT_EQ(json::parse(info.out)["hash"], json::parse(trained.out)["hash"]);
}

TEST(TokenizerCommandTest, JsonLines) {
  const ProgramResult encoded = RunProgram({"tokenizer", "encode", "bytes", "--jsonl"},
                                           "{\"text\": \"ab\", \"n\": 1}\n\n{\"text\":\"\"}\n");
  EXPECT_EQ(encoded.out, "{\"text\":\"ab\",\"n\":1,\"ids\":[97,98]}\n{\"text\":\"\",\"ids\":[]}\n");
  const ProgramResult decoded =
      RunProgram({"tokenizer", "decode", "bytes", "--jsonl"}, "{\"ids\":[97,98]}\n");
  EXPECT_EQ(decoded.out, "{\"ids\":[97,98],\"text\":\"ab\"}\n");
  const ProgramResult missing = RunProgram({"tokenizer", "encode", "bytes", "--jsonl"},
                                           "{\"text\":\"a\"}\n{\"txt\":\"a\"}\n");
  EXPECT_EQ(missing.status, 1);
  EXPECT_NE(missing.err.find("standard input, line 2:"), std::string::npos) << missing.err;
}

TEST(TokenizerCommandTest, BytesAndImport) {
  const TemporaryDirectory dir;
  EXPECT_EQ(RunProgram({"tokenizer", "train", "--bytes", "--out", dir / "a.json"}).status, 0);
  EXPECT_EQ(RunProgram({"tokenizer", "import", dir / "a.json", "-o", dir / "b.json"}).status, 0);
  EXPECT_EQ(ReadFile(dir / "a.json"), ReadFile(dir / "b.json"));
}

TEST(TokenizerCommandTest, WrongCalls) {
  const TemporaryDirectory dir;
  WriteFileAtomic(dir / "a.txt", kText);
  WriteFileAtomic(dir / "empty.txt", "");
  struct Case {
    std::vector<std::string> arguments;
    int status;
    std::string message;
  };
  const Case cases[] = {
      {{"train", "--vocab", "256", "--output", dir / "t", dir / "a.txt"},
       2,
       "error: tokenizer train: a vocabulary of 256, expected 257 (256 bytes and the end of text) "
       "to "
       "1048576\n"},
      {{"train", "--vocab", "300", "--output", dir / "t", dir / "empty.txt", "--quiet"},
       1,
       "error: tokenizer train: the corpus is empty, expected some text\n"},
      {{"train", "--vocab", "300", "--output", dir / "t", dir / "none.txt"},
       1,
       "error: corpus: " + dir.path() +
           "/none.txt does not exist, expected a file or a directory\n"},
      {{"train", "--output", dir / "t"},
       2,
       "error: tokenizer train: give --vocab N and the files to learn from, or --bytes\n"},
      {{"info", dir / "a.txt"},
       1,
       "error: " + dir.path() +
           "/a.txt: line 1 is 'the cat and the hat and the bat: the end', expected two tokens with "
           "a "
           "space between\n"},
      {{"decode", "bytes"}, 1, "error: standard input: '1x' at offset 3, expected a token id\n"},
  };
  for (const Case& c : cases) {
    std::vector<std::string> arguments = c.arguments;
    arguments.insert(arguments.begin(), "tokenizer");
    const ProgramResult result = RunProgram(arguments, "12 1x 3");
    EXPECT_EQ(result.status, c.status) << c.message;
    EXPECT_EQ(result.err, c.message);
    EXPECT_EQ(result.out, "");
  }
  EXPECT_EQ(dir.List(), (std::vector<std::string>{"a.txt", "empty.txt"}));
}

}  // namespace
}  // namespace denseformer
