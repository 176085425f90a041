// train and eval as users call them: kills, signals, full disks, wrong calls, results.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <regex>
#include <thread>

#include "base/error.h"
#include "base/random.h"
#include "base/testing.h"
#include "cli/run_program.h"
#include "io/run_directory.h"
#include "train/testing.h"

namespace denseformer {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class TrainCommandTest : public testing::Test {
 protected:
  // A call of train on the preset `test`.
  std::vector<std::string> Call(const std::string& run,
                                const std::vector<std::string>& more = {}) const {
    std::vector<std::string> call = {"train",    run,
                                     "--preset", "test",
                                     "--data",   data_,
                                     "--dwa",    "2x1",
                                     "--quiet",  "--threads",
                                     "1",        "--steps",
                                     "40",       "--save-every",
                                     "7",        "--eval-every",
                                     "10",       "--eval-batches",
                                     "2"};
    call.insert(call.end(), more.begin(), more.end());
    return call;
  }
  std::vector<std::string> Resume(const std::string& run) const {
    return {"train", run, "--resume", "--quiet", "--threads", "1"};
  }

  // Starts the program and returns its process.
  static pid_t Start(const std::vector<std::string>& call) {
    const pid_t child = fork();
    if (child < 0) ThrowErrno(errno, "fork");
    if (child > 0) return child;
    std::vector<char*> words = {const_cast<char*>(ProgramPath())};
    for (const std::string& word : call) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    if (std::freopen("/dev/null", "w", stdout) == nullptr) _exit(126);
    execv(ProgramPath(), words.data());
    _exit(127);
  }

  // False where the process ends before it has recorded a step.
  static bool WaitForFirstStep(const std::string& run, pid_t child) {
    const std::string metrics = run + "/metrics.jsonl";
    while (!FileExists(metrics) || FileSize(metrics) == 0) {
      if (waitpid(child, nullptr, WNOHANG) != 0) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

  // Runs `call`, kills it with `signal` after `delay`; the status as waitpid gives it.
  static int RunAndSignal(const std::vector<std::string>& call, std::chrono::microseconds delay,
                          int signal) {
    const pid_t child = Start(call);
    std::this_thread::sleep_for(delay);
    kill(child, signal);
    int status = 0;
    waitpid(child, &status, 0);
    return status;
  }

  const TemporaryDirectory scratch_;
  const std::string data_ = MakeTestData(scratch_ / "data");
};

TEST_F(TrainCommandTest, SurvivesKillsAtRandomMoments) {
  const char* wanted = std::getenv("DENSEFORMER_KILLS");
  const int kills = wanted != nullptr ? std::atoi(wanted) : 100;
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(RunProgram(Call(scratch_ / "whole")).status, 0);
  const auto whole_time = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::steady_clock::now() - begin);
  const auto expected = Content(scratch_ / "whole");

  Random random(/*key=*/17);
  int killed = 0, finished = 0;
  const std::string run = scratch_ / "killed";
  while (killed < kills) {
    std::filesystem::remove_all(run);
    std::vector<std::string> call = Call(run);
    for (;;) {
      const auto delay = std::chrono::microseconds(
          random.Below(static_cast<uint64_t>(whole_time.count()) / 3 + 1));
      const int status = RunAndSignal(call, delay, SIGKILL);
      if (WIFEXITED(status)) {
        ASSERT_EQ(WEXITSTATUS(status), 0) << "after " << killed << " kills";
        break;
      }
      ++killed;
      // Before the options are written there is nothing to resume.
      if (FileExists(run + "/train.toml")) call = Resume(run);
      if (killed >= kills) {
        ASSERT_EQ(RunProgram(call).status, 0);
        break;
      }
    }
    ++finished;
    ASSERT_EQ(Differences(Content(run), expected), "") << "after " << killed << " kills";
    for (const VerifyResult& result : VerifyRun(run)) ASSERT_EQ(result.problem, "") << result.path;
  }
  RecordProperty("kills", killed);
  RecordProperty("finished_runs", finished);
}

TEST_F(TrainCommandTest, SignalsFinishTheStepAndSave) {
  ASSERT_EQ(RunProgram(Call(scratch_ / "whole", {"--steps", "150"})).status, 0);
  const auto expected = Content(scratch_ / "whole");
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string run = scratch_ / std::to_string(signal);
    const pid_t child = Start(Call(run, {"--steps", "150"}));
    ASSERT_TRUE(WaitForFirstStep(run, child));
    kill(child, signal);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 130);
    const int64_t step = ListCheckpoints(run).back().step;
    EXPECT_EQ(ReadJsonLines(run + "/metrics.jsonl").back()["step"], step);
    EXPECT_GT(step, 0);
    EXPECT_LT(step, 150);
    EXPECT_EQ(RunProgram(Resume(run)).status, 0);
    EXPECT_EQ(Differences(Content(run), expected), "");
  }
}

TEST_F(TrainCommandTest, AFullDiskLosesNothing) {
  const std::string disk = scratch_ / "disk";
  std::filesystem::create_directory(disk);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=2900k") != 0) {
    GTEST_SKIP() << "needs the right to mount a small file system";
  }
  struct Unmount {
    std::string path;
    ~Unmount() { umount2(path.c_str(), MNT_DETACH); }
  } unmount{disk};
  const ProgramResult result = RunProgram(Call(disk + "/run", {"--keep", "3"}));
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(Contains(result.err, "No space left on device")) << result.err;
  const std::vector<CheckpointInfo> left = ListCheckpoints(disk + "/run");
  EXPECT_FALSE(left.empty());
  for (const CheckpointInfo& checkpoint : left) EXPECT_NO_THROW(VerifyCheckpoint(checkpoint.path));
  // With more room it goes on.
  EXPECT_EQ(mount("tmpfs", disk.c_str(), "tmpfs", MS_REMOUNT, "size=20000k"), 0);
  const ProgramResult resumed = RunProgram(Resume(disk + "/run"));
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  ASSERT_EQ(RunProgram(Call(scratch_ / "whole", {"--keep", "3"})).status, 0);
  EXPECT_EQ(Differences(Content(disk + "/run"), Content(scratch_ / "whole")), "");
}

TEST_F(TrainCommandTest, ALimitOnTheSizeOfFilesIsAnErrorAndLosesNothing) {
  const std::string run = scratch_ / "run";
  const ProgramResult result = RunProgram(Call(run), "", "ulimit -f 8;");
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(Contains(result.err, "File too large")) << result.err;
  EXPECT_EQ(RunProgram(Call(run)).status, 0);
}

TEST_F(TrainCommandTest, StartsFromTheWeightsOfARun) {
  const std::string plain = scratch_ / "plain", dense = scratch_ / "dense";
  ASSERT_EQ(RunProgram({"train", plain, "--preset", "test", "--data", data_, "--steps", "6",
                        "--eval-every", "3", "--quiet", "--precision", "fp32"})
                .status,
            0);
  const ProgramResult result =
      RunProgram({"train", dense, "--init", plain, "--dwa", "2x2", "--data", data_, "--preset",
                  "test", "--steps", "4", "--eval-every", "2", "--precision", "fp32"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(Contains(result.err, "starts from the weights of " + plain)) << result.err;
  std::vector<double> before, after;
  for (const auto& record : ReadJsonLines(plain + "/metrics.jsonl")) {
    if (record.contains("val_loss")) before.push_back(record["val_loss"]);
  }
  for (const auto& record : ReadJsonLines(dense + "/metrics.jsonl")) {
    if (record.contains("val_loss")) after.push_back(record["val_loss"]);
  }
  ASSERT_EQ(after.size(), 3u);
  EXPECT_EQ(after[0], before.back());  // the averages are the identity
  EXPECT_NE(after[2], after[0]);
  // Neither the new run nor the source can be overwritten by another call.
  const ProgramResult again = RunProgram({"train", scratch_ / "x", "--init", plain, "--vocab-size",
                                          "600", "--data", data_, "--quiet"});
  EXPECT_EQ(again.status, 2);
  EXPECT_TRUE(Contains(again.err, "model.vocab_size is 600, but the weights at")) << again.err;
  EXPECT_FALSE(FileExists(scratch_ / "x"));
}

TEST_F(TrainCommandTest, HelpHasDefaultsAndSaysHowToSwitchOff) {
  // Without its line breaks.
  const std::string help =
      std::regex_replace(RunProgram({"train", "--help"}).out, std::regex("\\s+"), " ");
  for (const char* part : {"default: by preset, tiny: 0.003", "--no-eval-final", "on by default",
                           "default: cosine", "off by default"}) {
    EXPECT_TRUE(Contains(help, part)) << part;
  }
  const std::string run = scratch_ / "run";
  const ProgramResult result =
      RunProgram({"train", run, "--preset", "test", "--data", data_, "--steps", "2",
                  "--no-eval-final", "--no-log-tensorboard"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_FALSE(FileExists(run + "/tensorboard"));
  EXPECT_FALSE(Contains(ReadFile(run + "/metrics.jsonl"), "final_loss"));
  // The plan in words, not the whole configuration.
  EXPECT_TRUE(Contains(result.err, "blocks of width")) << result.err;
  EXPECT_FALSE(Contains(result.err, "[optimizer]")) << result.err;
}

TEST_F(TrainCommandTest, TwoWritersAreRefused) {
  const std::string run = scratch_ / "run";
  const pid_t child = Start(Call(run, {"--steps", "100000000"}));
  ASSERT_TRUE(WaitForFirstStep(run, child));
  const ProgramResult second = RunProgram(Resume(run));
  EXPECT_EQ(second.status, 1);
  EXPECT_TRUE(Contains(second.err, "is in use by another process")) << second.err;
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST_F(TrainCommandTest, ADamagedNewestCheckpointIsReportedAndTheOneBeforeUsed) {
  const std::string run = scratch_ / "run";
  ASSERT_EQ(RunProgram(Call(run)).status, 0);
  const auto expected = Content(run);
  const std::vector<CheckpointInfo> checkpoints = ListCheckpoints(run);
  ASSERT_GE(checkpoints.size(), 2u);
  std::filesystem::remove(run + "/summary.json");
  const std::string damaged = checkpoints.back().path + "/optimizer.safetensors";
  std::string bytes = ReadFile(damaged);
  bytes[bytes.size() / 2] ^= 1;
  OutputFile(damaged).Write(bytes);
  const ProgramResult result = RunProgram(Resume(run));
  EXPECT_EQ(result.status, 0);
  EXPECT_TRUE(Contains(result.err, damaged)) << result.err;
  EXPECT_TRUE(FileExists(run + "/checkpoints/damaged-step-00000040"));
  EXPECT_EQ(Differences(Content(run), expected), "");
}

TEST_F(TrainCommandTest, WrongCallsGetOneLine) {
  const std::string run = scratch_ / "run", fresh = scratch_ / "fresh";
  ASSERT_EQ(RunProgram(Call(run, {"--steps", "3"})).status, 0);
  WriteFileAtomic(scratch_ / "bad.toml", "[train]\nstepps = 3\n");
  struct Case {
    std::vector<std::string> call;
    int status;
    std::string message;
  };
  const Case cases[] = {
      {{"train"}, 2, "RUN is required"},
      {{"train", fresh}, 2, "no data"},
      {{"train", fresh, "--data", scratch_ / "none"}, 1, "none/train.bin"},
      {{"train", fresh, "--data", data_, "--preset", "tst"}, 2, "did you mean 'test'?"},
      {{"train", fresh, "--data", data_, "--set", "stepps=3"}, 2, "did you mean 'steps'?"},
      {{"train", fresh, "--data", data_, "--config", scratch_ / "bad.toml"},
       2,
       "bad.toml:2: unknown key 'train.stepps' (did you mean 'train.steps'?)"},
      {{"train", fresh, "--data", data_, "--stepps", "3"}, 2, "did you mean '--steps'?"},
      {{"train", fresh, "--data", data_, "--steps", "3x"}, 2, "train.steps"},
      {{"train", fresh, "--data", data_, "--dwa", "4y5"}, 2, "4y5"},
      {{"train", fresh, "--data", data_, "--preset", "test", "--vocab-size", "100"},
       1,
       "train.bin"},
      {{"train", fresh, "--data", data_, "--preset", "test", "--batch-size", "1000000"},
       1,
       "training needs about"},
      {{"train", fresh, "--force", "lr"}, 2, "--force goes with --resume"},
      {{"train", run, "--data", data_, "--preset", "test"}, 2, "holds a run already"},
      {{"train", run, "--resume", "--lr", "7"}, 2, "optimizer.lr (7.0, was 0.01)"},
      {{"train", run, "--resume", "--steps", "2", "--force", "steps"}, 2, "beyond train.steps"},
      {{"train", scratch_ / "none", "--resume"}, 1, "nothing to resume"},
      {{"train", run + "/checkpoints", "--resume"}, 1, "did you mean"},
      {{"train", ListCheckpoints(run).back().path, "--resume"}, 2, "is a checkpoint; give its run"},
      {{"eval", scratch_ / "none"}, 1, "none"},
      {{"eval", run, "--seq-len", "33"}, 2, "33"},
      {{"eval", run, "--data", scratch_ / "none.bin"}, 1, "none.bin"},
      {{"eval", run, "--prune", "101"}, 2, "--prune"},
  };
  for (const Case& c : cases) {
    std::vector<std::string> call = c.call;
    call.push_back("--quiet");
    const ProgramResult result = RunProgram(call);
    EXPECT_EQ(result.status, c.status) << c.message << ": " << result.err;
    EXPECT_TRUE(Contains(result.err, c.message)) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
  EXPECT_FALSE(FileExists(fresh));
}

TEST_F(TrainCommandTest, ResumeChecksTheData) {
  const std::string run = scratch_ / "run";
  ASSERT_EQ(RunProgram(Call(run, {"--steps", "3"})).status, 0);
  std::filesystem::create_directory(scratch_ / "moved");
  std::filesystem::copy(data_, scratch_ / "moved");
  std::vector<std::string> call = Resume(run);
  call.insert(call.end(), {"--data", scratch_ / "moved", "--force", "steps", "--steps", "4"});
  EXPECT_EQ(RunProgram(call).status, 0);
  WriteTokens(scratch_ / "moved/train.bin", 20000, 500, 3);
  call.back() = "5";
  const ProgramResult refused = RunProgram(call);
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(Contains(refused.err, "are not those that the run began with")) << refused.err;
  call.insert(call.end(), {"--force", "data.path"});
  EXPECT_EQ(RunProgram(call).status, 0);
}

TEST_F(TrainCommandTest, DryRunWritesNothing) {
  const std::string run = scratch_ / "run";
  const ProgramResult result = RunProgram(Call(run, {"--dry-run", "--json"}));
  ASSERT_EQ(result.status, 0) << result.err;
  const auto plan = nlohmann::json::parse(result.out);
  EXPECT_EQ(plan["parameters"], 65832);
  EXPECT_EQ(plan["dwa_weights"], 8);
  EXPECT_EQ(plan["tokens_per_step"], 128);
  EXPECT_EQ(plan["tokens"], 128 * 40);
  EXPECT_GT(plan["memory_bytes"], 4 * 4 * 65832);
  EXPECT_GT(plan["seconds"], 0);
  EXPECT_FALSE(FileExists(run));
  EXPECT_EQ(plan["recompute"]["on"], false);
  const ProgramResult recompute = RunProgram(Call(run, {"--dry-run", "--json", "--recompute"}));
  const auto other = nlohmann::json::parse(recompute.out);
  EXPECT_EQ(other["recompute"]["on"], true);
  EXPECT_EQ(other["memory_bytes"].get<int64_t>() + other["recompute"]["saved_bytes"].get<int64_t>(),
            plan["memory_bytes"]);
  const ProgramResult text = RunProgram(Call(run, {"--dry-run"}));
  for (const char* word : {"parameters", "memory", "recompute", "steps", "time", "tokens/s"}) {
    EXPECT_TRUE(Contains(text.out, word)) << word;
  }
}

TEST_F(TrainCommandTest, RecomputeSaysWhatItCosts) {
  const std::vector<std::string> call = {"train", scratch_ / "run", "--preset", "test", "--data",
                                         data_,   "--steps",        "2"};
  const auto note = "recompute: ";
  std::vector<std::string> recompute = call;
  recompute[1] += "-recompute";
  recompute.push_back("--recompute");
  EXPECT_FALSE(Contains(RunProgram(call).err, note));
  const ProgramResult result = RunProgram(recompute);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(Contains(result.err, note)) << result.err;
  EXPECT_TRUE(Contains(result.err, "% more operations per step, ")) << result.err;
  EXPECT_TRUE(Contains(result.err, " less memory\n")) << result.err;
}

TEST_F(TrainCommandTest, ResultsAsJson) {
  const std::string run = scratch_ / "run";
  const ProgramResult trained = RunProgram(Call(run, {"--json", "--steps", "10"}));
  ASSERT_EQ(trained.status, 0) << trained.err;
  const auto summary = nlohmann::json::parse(trained.out);
  EXPECT_EQ(summary, nlohmann::json::parse(ReadFile(run + "/summary.json")));
  EXPECT_EQ(summary["validation"]["tokens"], 999);

  const auto eval = [&](std::vector<std::string> more) {
    std::vector<std::string> call = {"eval", run, "--json", "--quiet", "--threads", "1"};
    call.insert(call.end(), more.begin(), more.end());
    const ProgramResult result = RunProgram(call);
    EXPECT_EQ(result.status, 0) << result.err;
    return nlohmann::json::parse(result.out);
  };
  const auto whole = eval({});
  EXPECT_EQ(whole["tokens"], 999);
  // Inference has kernels of its own, which add in another order than those of training.
  const double validation = summary["validation"]["loss"];
  EXPECT_NEAR(whole["loss"], validation, 1e-5 * validation);
  EXPECT_DOUBLE_EQ(whole["perplexity"], std::exp(whole["loss"].get<double>()));
  EXPECT_NEAR(whole["accuracy"], summary["validation"]["accuracy"], 0.003);
  EXPECT_TRUE(whole["bits_per_byte"].is_null());
  EXPECT_EQ(eval({"--max-tokens", "100"})["tokens"], 100);
  EXPECT_NE(eval({"--seq-len", "16"})["loss"], whole["loss"]);
  EXPECT_EQ(eval({"--prune", "100"})["pruned"], 8);
  EXPECT_NE(eval({"--prune", "100"})["loss"], whole["loss"]);
  EXPECT_EQ(eval({"--checkpoint", "best"})["tokens"], 999);
}

}  // namespace
}  // namespace denseformer
