// denseformer data, from the outside.
#include <gtest/gtest.h>
#include <zstd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/testing.h"
#include "cli/run_program.h"
#include "data/token_file.h"

namespace denseformer {
namespace {

using nlohmann::json;

TEST(DataCommandTest, PrepareAndInfo) {
  const TemporaryDirectory dir;
  WriteFileAtomic(dir / "a.txt", "one\n<|endoftext|>\ntwo\n");
  WriteFileAtomic(dir / "v.txt", "three");
  const std::string out = dir / "data";
  const ProgramResult prepared =
      RunProgram({"data", "prepare", "--tokenizer", "bytes", "--output", out, "--val",
                  dir / "v.txt", "--json", "--quiet", "--", dir / "a.txt"});
  ASSERT_EQ(prepared.status, 0) << prepared.err;
  EXPECT_EQ(prepared.err, "");
  EXPECT_EQ(json::parse(prepared.out)["files"]["train.bin"]["tokens"], 10);
  EXPECT_GT(json::parse(prepared.out)["megabytes_per_second"], 0);

  const ProgramResult info = RunProgram({"data", "info", out, "--verify", "--json"});
  ASSERT_EQ(info.status, 0) << info.err;
  const json files = json::parse(info.out)["files"];
  EXPECT_EQ(files[0]["documents"], 2);
  EXPECT_EQ(files[0]["end_of_text_tokens"], 2);
  EXPECT_EQ(files[1]["text_bytes"], 5);
  EXPECT_EQ(
      RunProgram({"data", "info", out, "--vocab", "256"}).err,
      "error: " + out +
          "/train.bin: token 256 at position 4 is outside the vocabulary of 256 (prepared with "
          "another tokenizer?)\n");

  // A byte changed in place is found by the checksum.
  std::string tokens = ReadFile(out + "/val.bin");
  tokens[0] ^= 1;
  WriteFileAtomic(out + "/val.bin", tokens);
  const ProgramResult damaged = RunProgram({"data", "info", out, "--verify"});
  EXPECT_EQ(damaged.status, 1);
  EXPECT_NE(damaged.err.find("val.bin: checksum"), std::string::npos) << damaged.err;
}

TEST(DataCommandTest, InterruptedRunLeavesWhatWasThere) {
  const TemporaryDirectory dir;
  WriteFileAtomic(dir / "a.txt", "one two three\n");
  const std::string out = dir / "out", fifo = dir / "fifo", pid = dir / "pid";
  const auto arguments = [&](const std::string& input) {
    return std::vector<std::string>{"data",     "prepare", "--tokenizer", "bytes",
                                    "--output", out,       input};
  };
  ASSERT_EQ(RunProgram(arguments(dir / "a.txt")).status, 0);
  const std::string before = ReadFile(out + "/meta.json");
  // The text comes through a pipe, and the signal in the middle of it.
  const std::string words = "yes word | head -c 8000000; ";
  const ProgramResult result = RunProgram(
      arguments(fifo), "",
      "mkfifo " + fifo + "; (" + words + "kill -TERM $(cat " + pid + "); " + words + ") >" + fifo +
          " 2>/dev/null & sh -c 'echo $$ >" + pid + "; exec \"$0\" \"$@\"'");
  EXPECT_EQ(result.status, 130);
  EXPECT_EQ(result.err, "error: data prepare: stopped by a signal\n");
  EXPECT_EQ(ReadFile(out + "/meta.json"), before);
  EXPECT_EQ(TokenFile(out + "/train.bin").size(), 14);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(out), {}), 4);
}

TEST(DataCommandTest, MemoryDoesNotDependOnTheCorpus) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer itself needs more memory than the limit";
#endif
  // Compressed blocks, each as large as the memory that the program may have for its data.
  constexpr int64_t kLimitKilobytes = 16384, kBlocks = 100;
  const std::string line = "incomprehensibilities counterrevolutionary\n";
  std::string block;
  while (block.size() < kLimitKilobytes * 1024) block += line;
  std::string frame(ZSTD_compressBound(block.size()), '\0');
  frame.resize(ZSTD_compress(frame.data(), frame.size(), block.data(), block.size(), 1));
  const TemporaryDirectory dir;
  OutputFile big(dir / "big.txt.zst");
  for (int64_t i = 0; i < kBlocks; ++i) big.Write(frame);
  big.Close();
  WriteFileAtomic(dir / "small.txt", line + line);
  ASSERT_EQ(RunProgram({"tokenizer", "train", "--vocab", "320", "--output", dir / "t.json",
                        dir / "small.txt"})
                .status,
            0);
  const ProgramResult result =
      RunProgram({"data", "prepare", "--tokenizer", dir / "t.json", "--output", dir / "out",
                  "--threads", "2", "--quiet", "--json", dir / "big.txt.zst"},
                 "",
                 "export OMP_WAIT_POLICY=passive; ulimit -d " + std::to_string(kLimitKilobytes) +
                     "; ulimit -s 256;");
  ASSERT_EQ(result.status, 0) << result.err;
  const json files = json::parse(result.out)["files"];
  EXPECT_EQ(files["train.bin"]["bytes"].get<int64_t>() + files["val.bin"]["bytes"].get<int64_t>(),
            kBlocks * static_cast<int64_t>(block.size()));
}

}  // namespace
}  // namespace denseformer
