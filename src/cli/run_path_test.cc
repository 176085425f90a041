// What commands say where RUN is no run, is one checkpoint, or is damaged.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "base/testing.h"
#include "cli/run_program.h"
#include "io/run_directory.h"
#include "train/testing.h"

namespace denseformer {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class RunPathTest : public testing::Test {
 protected:
  // A short run with checkpoints of the steps 5 and 10.
  void Train() const {
    const ProgramResult result =
        RunProgram({"train", run_, "--preset", "test", "--data", data_, "--quiet", "--threads", "1",
                    "--steps", "10", "--save-every", "5", "--keep", "2"});
    ASSERT_EQ(result.status, 0) << result.err;
  }
  static void Damage(const std::string& path) {
    std::string content = ReadFile(path);
    content[content.size() / 2] ^= 1;
    // Not by another file of the same name: model.safetensors of the run is the same file.
    OutputFile file(path, /*append=*/false);
    file.Write(content);
    file.Close();
  }

  const TemporaryDirectory scratch_;
  const std::string data_ = MakeTestData(scratch_ / "data");
  const std::string run_ = scratch_ / "run";
};

// Runs are often named after their patterns, and users work among them.
TEST_F(RunPathTest, NamesOfPatternsAreNoMaskFiles) {
  const std::string here = "cd " + scratch_.path() + " &&";
  std::filesystem::create_directories(scratch_ / "none");
  WriteFileAtomic(scratch_ / "2x2", "not a mask\n");
  WriteFileAtomic(scratch_ / "last:2", "not a mask\n");
  const auto run = [&](const std::vector<std::string>& arguments) {
    const ProgramResult result = RunProgram(arguments, "", here);
    EXPECT_EQ(result.status, 0) << arguments[0] << " " << arguments[1] << ": " << result.err;
  };
  const std::vector<std::string> common = {"--preset", "test",      "--data", data_,
                                           "--quiet",  "--threads", "1"};
  for (const std::string dwa : {"1x1", "2x2", "none", "last:2"}) {
    const std::string name = dwa == "1x1" ? dwa : "run-" + dwa;
    std::vector<std::string> train = {"train", name, "--dwa", dwa, "--steps", "2"};
    train.insert(train.end(), common.begin(), common.end());
    run(train);
    run({"eval", name, "--max-tokens", "50"});
    run({"train", name, "--resume", "--steps", "3", "--force", "steps", "--quiet"});
    run({"info", "--preset", "test", "--dwa", dwa});
  }
}

TEST_F(RunPathTest, AFileIsNoRun) {
  const std::string file = scratch_ / "file";
  WriteFileAtomic(file, "text");
  const std::vector<std::vector<std::string>> calls = {
      {"eval", file},
      {"generate", file, "-p", "a"},
      {"analyze", file},
      {"report", file, "-o", scratch_ / "report.html"},
      {"info", file},
      {"info", file, "--verify"},
      {"export", file, "-o", scratch_ / "out"},
      {"train", file, "--resume"},
      {"train", file, "--preset", "test", "--data", data_}};
  for (const std::vector<std::string>& call : calls) {
    const ProgramResult result = RunProgram(call);
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.err, "error: " + file + " is a file, expected a run directory\n") << call[0];
  }
}

TEST_F(RunPathTest, TrainSaysFirstWhatIsWrong) {
  const ProgramResult no_data = RunProgram({"train", run_, "--preset", "test"});
  EXPECT_TRUE(no_data.err.starts_with("error: train: no data")) << no_data.err;
  const ProgramResult plan =
      RunProgram({"train", "--preset", "test", "--data", scratch_ / "none", "--dry-run"});
  EXPECT_TRUE(plan.err.starts_with("error: train: no ")) << plan.err;
}

TEST_F(RunPathTest, ACheckpointIsReadWithTheFilesOfItsRun) {
  Train();
  const std::string checkpoint = ListCheckpoints(run_).back().path;
  const ProgramResult of_run = RunProgram({"eval", run_, "--json", "--quiet"});
  const ProgramResult of_checkpoint = RunProgram({"eval", checkpoint, "--json", "--quiet"});
  EXPECT_EQ(of_checkpoint.status, 0) << of_checkpoint.err;
  EXPECT_EQ(of_checkpoint.out, of_run.out);
  EXPECT_EQ(RunProgram({"info", checkpoint}).out, RunProgram({"info", run_}).out);
  EXPECT_EQ(RunProgram({"info", checkpoint, "--verify"}).status, 0);
  const ProgramResult analyze = RunProgram({"analyze", checkpoint});
  EXPECT_TRUE(Contains(analyze.err, "is one checkpoint, expected a run directory: " + run_))
      << analyze.err;
  const ProgramResult folder = RunProgram({"info", run_ + "/checkpoints"});
  EXPECT_TRUE(Contains(folder.err, "did you mean " + run_ + "?")) << folder.err;
  std::filesystem::rename(checkpoint, scratch_ / "alone");
  const ProgramResult alone = RunProgram({"info", scratch_ / "alone"});
  EXPECT_TRUE(Contains(alone.err, "a checkpoint outside of its run")) << alone.err;
}

TEST_F(RunPathTest, DamagedWeightsAreReportedAndTheOnesBeforeUsed) {
  Train();
  const std::vector<CheckpointInfo> checkpoints = ListCheckpoints(run_);
  ASSERT_EQ(checkpoints.size(), 2u);
  const ProgramResult before = RunProgram({"eval", run_, "--json", "--quiet", "--checkpoint", "5"});
  Damage(checkpoints[1].path + "/model.safetensors");
  const ProgramResult damaged = RunProgram({"eval", run_, "--json", "--quiet"});
  EXPECT_EQ(damaged.status, 0);
  EXPECT_EQ(damaged.out, before.out);
  EXPECT_TRUE(Contains(damaged.err, "checkpoint of step 10 is damaged")) << damaged.err;
  EXPECT_TRUE(Contains(damaged.err, "using the checkpoint of step 5")) << damaged.err;
  EXPECT_EQ(RunProgram({"info", run_, "--verify"}).status, 1);

  Damage(checkpoints[0].path + "/model.safetensors");
  const ProgramResult lost = RunProgram({"eval", run_, "--quiet"});
  EXPECT_EQ(lost.status, 1);
  EXPECT_TRUE(Contains(lost.err, "none of its 2 checkpoints is whole")) << lost.err;
}

TEST_F(RunPathTest, ADamagedConfigurationIsNamed) {
  Train();
  WriteFileAtomic(run_ + "/config.json", "{\"model_type\": ");
  const ProgramResult result = RunProgram({"eval", run_, "--quiet"});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(result.err.starts_with("error: " + run_ + "/config.json: not JSON: line 1, column"))
      << result.err;
  EXPECT_FALSE(Contains(result.err, "json.exception")) << result.err;
}

TEST_F(RunPathTest, EvalAsksForDataWhereTheRunNamesNone) {
  Train();
  WriteFileAtomic(run_ + "/train.toml", "");
  const ProgramResult empty = RunProgram({"eval", run_, "--quiet"});
  EXPECT_EQ(empty.status, 2);
  EXPECT_TRUE(Contains(empty.err, "give --data")) << empty.err;
  std::filesystem::remove(run_ + "/train.toml");
  const ProgramResult missing = RunProgram({"eval", run_, "--quiet"});
  EXPECT_EQ(missing.status, 2);
  EXPECT_TRUE(Contains(missing.err, "give --data")) << missing.err;
}

TEST_F(RunPathTest, AFileIsNoPlaceForResults) {
  Train();
  const std::string file = scratch_ / "file";
  WriteFileAtomic(file, "text");
  const ProgramResult analyze = RunProgram({"analyze", run_, "--study", "cosine", "-o", file});
  EXPECT_EQ(analyze.status, 1);
  EXPECT_TRUE(Contains(analyze.err, "error: cannot make the directory " + file)) << analyze.err;
}

}  // namespace
}  // namespace denseformer
