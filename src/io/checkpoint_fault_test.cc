// Every operation on the disk made to fail in turn, a process killed at every operation, and each
// kind of damage to each file.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/log.h"
#include "base/random.h"
#include "base/testing.h"
#include "io/checkpoint.h"
#include "io/run_directory.h"

namespace denseformer {
namespace {

namespace fs = std::filesystem;

// Every bit of its files is changed.
ModelConfig SmallestConfig() {
  ModelConfig config;
  config.n_layer = 1;
  config.n_head = 1;
  config.n_embd = 2;
  config.vocab_size = 3;
  config.seq_len = 8;
  config.dwa = "1x1";
  return config;
}

Model& SharedModel() {
  static Model model(SmallestConfig(), DType::kF32, ModelUse::kInference);
  return model;
}

// Saves weights and moments that all are `value`.
std::string Save(const RunWriter& writer, int value, int64_t step, const SaveOptions& options) {
  Model& model = SharedModel();
  std::vector<float> moment(model.table().buffer_size(), 0.0f);
  for (const Parameter& p : model.table().all()) {
    std::fill_n(moment.data() + p.offset, p.count(), static_cast<float>(value));
  }
  std::copy(moment.begin(), moment.end(), model.weights().begin());
  return SaveCheckpoint(writer, model, {moment, moment}, {step, 10.0 - value, {{"value", value}}},
                        options);
}

// The value of the newest whole checkpoint, with every number compared.
int LoadedValue(const std::string& run) {
  Model& model = SharedModel();
  std::vector<float> first(model.table().buffer_size()), second(first.size());
  const TrainerState state =
      LoadCheckpoint(NewestWholeCheckpoint(run).path, model, {first, second});
  const int value = state.trainer.at("value");
  for (const Parameter& p : model.table().all()) {
    for (int64_t i = p.offset; i < p.offset + p.count(); ++i) {
      if (model.weights()[i] != static_cast<float>(value) || first[i] != model.weights()[i] ||
          second[i] != model.weights()[i]) {
        ADD_FAILURE() << p.name << " is not of checkpoint " << value;
        return -1;
      }
    }
  }
  return value;
}

struct FaultCase {
  const char* name;
  int64_t first_step, second_step;  // the same step: one checkpoint takes the place of another
  int keep;
};

class FaultTest : public ::testing::TestWithParam<FaultCase> {};

// Fails operation `fail_at` of the second save. Returns false where there are fewer operations.
bool FailOnce(const FaultCase& c, int fail_at, bool stays_broken) {
  const TemporaryDirectory scratch;
  const std::string run = scratch / "run";
  const RunWriter writer(run);
  WriteRunFiles(writer, SmallestConfig(), "");
  Save(writer, 1, c.first_step, {.keep = c.keep});
  int operations = 0;
  SetIoFaultForTesting([&](IoOperation, const std::string&) {
    const int at = operations++;
    return at == fail_at || (stays_broken && at > fail_at) ? ENOSPC : 0;
  });
  testing::internal::CaptureStderr();
  const std::string message = ErrorOf([&] { Save(writer, 2, c.second_step, {.keep = c.keep}); });
  const std::string log = testing::internal::GetCapturedStderr();
  SetIoFaultForTesting({});
  const bool struck = operations > fail_at;
  if (message == "no error") {
    // Saved: then trouble with anything else was reported.
    EXPECT_EQ(LoadedValue(run), 2) << fail_at;
    EXPECT_EQ(log.find("checkpoint of step") != std::string::npos, struck) << fail_at << log;
  } else {
    EXPECT_NE(message.find("could not be saved durably"), std::string::npos) << message;
    EXPECT_NE(message.find("No space left on device"), std::string::npos) << message;
    EXPECT_GE(LoadedValue(run), 1) << fail_at;
  }
  EXPECT_EQ(LoadModel(run, DType::kF32, ModelUse::kInference).config(), SmallestConfig());
  // With the disk mended the next save is like any other.
  Save(writer, 3, 30, {.keep = 1});
  EXPECT_EQ(LoadedValue(run), 3);
  EXPECT_EQ(ListCheckpoints(run).size(), 1u) << fail_at;
  for (const VerifyResult& result : VerifyRun(run)) EXPECT_EQ(result.problem, "") << fail_at;
  return struck;
}

TEST_P(FaultTest, EachFailedOperationLosesNothing) {
  int count = 0;
  while (FailOnce(GetParam(), count, /*stays_broken=*/false)) ++count;
  EXPECT_GT(count, 20);
}

TEST_P(FaultTest, ADiskThatStaysFullLosesNothing) {
  int count = 0;
  while (FailOnce(GetParam(), count, /*stays_broken=*/true)) ++count;
  EXPECT_GT(count, 20);
}

// The process ends without warning before operation `fail_at`; returns false where it got through.
bool KillOnce(const FaultCase& c, int kill_at) {
  const TemporaryDirectory scratch;
  const std::string run = scratch / "run";
  {
    const RunWriter writer(run);
    WriteRunFiles(writer, SmallestConfig(), "");
    Save(writer, 1, c.first_step, {.keep = c.keep});
  }
  const pid_t child = fork();
  if (child == 0) {
    int operations = 0;
    SetIoFaultForTesting([&](IoOperation, const std::string&) {
      if (operations++ == kill_at) _exit(9);
      return 0;
    });
    const RunWriter writer(run);
    Save(writer, 2, c.second_step, {.keep = c.keep});
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  // As a reader finds it, then as the next writer does.
  EXPECT_GE(LoadedValue(run), 1) << kill_at;
  EXPECT_EQ(LoadModel(run, DType::kF32, ModelUse::kInference).config(), SmallestConfig());
  const RunWriter writer(run);
  EXPECT_GE(LoadedValue(run), WEXITSTATUS(status) == 0 ? 2 : 1) << kill_at;
  Save(writer, 3, 30, {.keep = 1});
  EXPECT_EQ(LoadedValue(run), 3) << kill_at;
  EXPECT_EQ(ListCheckpoints(run).size(), 1u) << kill_at;
  return WEXITSTATUS(status) != 0;
}

TEST_P(FaultTest, AKillBeforeEachOperationLosesNothing) {
  int count = 0;
  while (KillOnce(GetParam(), count)) ++count;
  EXPECT_GT(count, 20);
}

INSTANTIATE_TEST_SUITE_P(All, FaultTest,
                         ::testing::Values(FaultCase{"Next", 10, 20, 2},
                                           FaultCase{"NextKeepOne", 10, 20, 1},
                                           FaultCase{"SameStep", 10, 10, 1}),
                         [](const auto& info) { return std::string(info.param.name); });

class DamagedCheckpointTest : public ::testing::TestWithParam<const char*> {
 protected:
  DamagedCheckpointTest() : writer_(scratch_ / "run") {
    path_ = Save(writer_, 1, 10, {});
    file_ = path_ + "/" + GetParam();
    bytes_ = ReadFile(file_);
  }

  void ExpectDetected(const std::string& bytes, size_t where) {
    OutputFile file(file_);
    file.Write(bytes);
    file.Close();
    const std::string message = ErrorOf([&] { VerifyCheckpoint(path_); });
    ASSERT_NE(message, "no error") << GetParam() << " at " << where;
    ASSERT_NE(message.find(path_), std::string::npos) << message;
  }

  TemporaryDirectory scratch_;
  RunWriter writer_;
  std::string path_, file_, bytes_;
};

TEST_P(DamagedCheckpointTest, EachTruncationIsDetected) {
  for (size_t size = 0; size < bytes_.size(); ++size) ExpectDetected(bytes_.substr(0, size), size);
  ExpectDetected(bytes_ + "\n", bytes_.size());
}

TEST_P(DamagedCheckpointTest, EachBitFlipIsDetected) {
  for (size_t bit = 0; bit < bytes_.size() * 8; ++bit) {
    std::string damaged = bytes_;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    ExpectDetected(damaged, bit);
  }
}

TEST_P(DamagedCheckpointTest, AMissingFileIsDetected) {
  fs::remove(file_);
  const std::string message = ErrorOf([&] { VerifyCheckpoint(path_); });
  EXPECT_NE(message.find(GetParam()), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(Files, DamagedCheckpointTest,
                         ::testing::Values(kModelFile, kOptimizerFile, kStateFile, kManifestFile),
                         [](const auto& info) {
                           std::string name = info.param;
                           return name.substr(0, name.find('.'));
                         });

// RUN/model.safetensors stands alone in an imported run: its own hash must tell.
TEST(DamagedModelTest, EachBitFlipIsDetectedOnLoading) {
  const TemporaryDirectory scratch;
  const std::string run = scratch / "run";
  CreateRun(run, SharedModel(), "");
  const std::string path = run + "/" + kModelFile;
  const std::string bytes = ReadFile(path);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    OutputFile file(path);
    file.Write(damaged);
    file.Close();
    ASSERT_NE(ErrorOf([&] { LoadModel(run, DType::kF32, ModelUse::kInference); }), "no error")
        << bit;
  }
}

}  // namespace
}  // namespace denseformer
