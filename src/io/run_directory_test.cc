// Runs and checkpoints: what is saved comes back; whatever fails or is damaged, nothing is lost and
// nothing goes unnoticed.
#include "io/run_directory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/testing.h"
#include "io/checkpoint.h"
#include "io/safetensors.h"

namespace denseformer {
namespace {

namespace fs = std::filesystem;

ModelConfig TinyConfig() {
  ModelConfig config;
  config.n_layer = 2;
  config.n_head = 2;
  config.n_embd = 4;
  config.vocab_size = 6;
  config.seq_len = 8;
  config.dwa = "1x1";
  return config;
}

// A model with moments, all of whose numbers depend on `seed`.
struct Training {
  explicit Training(int seed, const ModelConfig& config = TinyConfig())
      : model(config, DType::kF32, ModelUse::kTraining),
        first(model.table().buffer_size()),
        second(model.table().buffer_size()) {
    model.Initialize(seed);
    for (const Parameter& p : model.table().all()) {
      for (int64_t i = 0; i < p.count(); ++i) {
        first[p.offset + i] = std::sin(static_cast<float>(seed + p.offset + i));
        second[p.offset + i] = std::exp(-first[p.offset + i]);
      }
    }
  }
  Moments moments() { return {first, second}; }
  bool operator==(const Training& other) const {
    return std::memcmp(model.weights().data(), other.model.weights().data(),
                       model.weights().size_bytes()) == 0 &&
           first == other.first && second == other.second;
  }

  Model model;
  std::vector<float> first, second;
};

std::string Save(const RunWriter& writer, int seed, int64_t step,
                 std::optional<double> loss = std::nullopt, const SaveOptions& options = {}) {
  Training training(seed);
  return SaveCheckpoint(writer, training.model, training.moments(), {step, loss, {{"seed", seed}}},
                        options);
}

// The seed of the newest checkpoint that can be loaded, all of it compared.
int LoadedSeed(const std::string& run) {
  Training loaded(0);
  const CheckpointInfo info = NewestWholeCheckpoint(run);
  const TrainerState state = LoadCheckpoint(info.path, loaded.model, loaded.moments());
  const int seed = state.trainer.at("seed");
  EXPECT_EQ(info.step, state.step);
  EXPECT_TRUE(loaded == Training(seed)) << seed;
  return seed;
}

std::vector<int64_t> Steps(const std::string& run) {
  std::vector<int64_t> steps;
  for (const CheckpointInfo& checkpoint : ListCheckpoints(run)) steps.push_back(checkpoint.step);
  return steps;
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void Overwrite(const std::string& path, const std::string& bytes) {
  OutputFile file(path);
  file.Write(bytes);
  file.Close();
}

class RunTest : public ::testing::Test {
 protected:
  TemporaryDirectory scratch_;
  const std::string run_ = scratch_ / "run";
};

TEST_F(RunTest, SavesAndLoadsBitForBit) {
  const RunWriter writer(run_);
  WriteRunFiles(writer, TinyConfig(), "{}");
  Training training(3);
  TrainerState state{12, 0.1 + 0.2, {{"x", 1.0 / 3.0}, {"big", UINT64_MAX}, {"s", "\xc3\xa9"}}};
  const std::string path = SaveCheckpoint(writer, training.model, training.moments(), state);
  EXPECT_EQ(path, run_ + "/checkpoints/step-00000012");
  Training loaded(4);
  const TrainerState read = LoadCheckpoint(path, loaded.model, loaded.moments());
  EXPECT_TRUE(loaded == training);
  EXPECT_EQ(read.step, 12);
  EXPECT_EQ(read.validation_loss, state.validation_loss);
  EXPECT_EQ(read.trainer, state.trainer);
  for (const VerifyResult& result : VerifyRun(run_)) EXPECT_EQ(result.problem, "") << result.path;
}

TEST_F(RunTest, ModelFileIsALinkToTheNewestCheckpoint) {
  const RunWriter writer(run_);
  WriteRunFiles(writer, TinyConfig(), "");
  for (const int64_t step : {1, 2, 2, 3}) {
    const std::string path = Save(writer, static_cast<int>(step), step);
    EXPECT_TRUE(fs::equivalent(path + "/model.safetensors", run_ + "/model.safetensors"));
  }
  const Model model = LoadModel(run_ + "/", DType::kF32, ModelUse::kInference);
  EXPECT_EQ(std::memcmp(model.weights().data(), Training(3).model.weights().data(),
                        model.weights().size_bytes()),
            0);
  for (const auto& entry : fs::recursive_directory_iterator(run_)) {
    EXPECT_FALSE(Contains(entry.path().filename().string(), ".tmp-")) << entry.path();
    EXPECT_FALSE(Contains(entry.path().filename().string(), ".old")) << entry.path();
  }
}

TEST_F(RunTest, CopiesTheModelWhereThereAreNoLinks) {
  const RunWriter writer(run_);
  WriteRunFiles(writer, TinyConfig(), "");
  SetIoFaultForTesting([](IoOperation operation, const std::string&) {
    return operation == IoOperation::kLink ? EPERM : 0;
  });
  const std::string path = Save(writer, 1, 1);
  SetIoFaultForTesting({});
  EXPECT_FALSE(fs::equivalent(path + "/model.safetensors", run_ + "/model.safetensors"));
  EXPECT_EQ(ReadFile(path + "/model.safetensors"), ReadFile(run_ + "/model.safetensors"));
}

TEST_F(RunTest, RetentionKeepsNewestAndBest) {
  const RunWriter writer(run_);
  const double losses[] = {5, 3, 4, 3.5, NAN, 3.2};
  for (int step = 1; step <= 6; ++step) Save(writer, step, step, losses[step - 1], {.keep = 2});
  EXPECT_EQ(Steps(run_), (std::vector<int64_t>{2, 5, 6}));
  EXPECT_EQ(BestCheckpoint(run_)->step, 2);
  Save(writer, 7, 7, 3.0, {.keep = 1});
  EXPECT_EQ(Steps(run_), (std::vector<int64_t>{7}));
  Save(writer, 8, 8, std::nullopt, {.keep = 1, .keep_best = false});
  EXPECT_EQ(Steps(run_), (std::vector<int64_t>{8}));
  EXPECT_FALSE(BestCheckpoint(run_).has_value());
}

TEST_F(RunTest, RetentionDoesNotCountDamagedCheckpoints) {
  const RunWriter writer(run_);
  Save(writer, 1, 1, std::nullopt, {.keep = 3});
  const std::string second = Save(writer, 2, 2, std::nullopt, {.keep = 3});
  fs::resize_file(second + "/optimizer.safetensors", 100);
  Save(writer, 3, 3, std::nullopt, {.keep = 2});
  EXPECT_EQ(Steps(run_), (std::vector<int64_t>{1, 3}));
}

TEST_F(RunTest, DamagedNewestIsReportedAndTheOneBeforeUsed) {
  const RunWriter writer(run_);
  WriteRunFiles(writer, TinyConfig(), "");
  Save(writer, 1, 1);
  const std::string newest = Save(writer, 2, 2);
  fs::resize_file(newest + "/model.safetensors", 1000);
  testing::internal::CaptureStderr();
  EXPECT_EQ(LoadedSeed(run_), 1);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(Contains(log, "checkpoint of step 2 is damaged: ")) << log;
  EXPECT_TRUE(Contains(log, "model.safetensors: 1000 bytes, expected")) << log;
  EXPECT_TRUE(Contains(log, "trying the one of step 1")) << log;
  // RUN/model.safetensors is the same file, so it is damaged too.
  testing::internal::CaptureStderr();
  const Model model = LoadModel(run_, DType::kF32, ModelUse::kInference);
  EXPECT_TRUE(Contains(testing::internal::GetCapturedStderr(), "using the checkpoint of step 1"));
  EXPECT_EQ(model.weights()[0], Training(1).model.weights()[0]);
  int problems = 0;
  for (const VerifyResult& result : VerifyRun(run_)) problems += !result.problem.empty();
  EXPECT_EQ(problems, 2);
  // A new save of the step takes the place of the damaged one.
  Save(writer, 5, 2);
  EXPECT_EQ(LoadedSeed(run_), 5);
  EXPECT_EQ(Steps(run_), (std::vector<int64_t>{1, 2}));
}

TEST_F(RunTest, NoCheckpointAndNoWholeOneAreErrors) {
  const RunWriter writer(run_);
  EXPECT_TRUE(Contains(ErrorOf([&] { NewestWholeCheckpoint(run_); }), "no checkpoints (expected"));
  fs::remove(Save(writer, 1, 1) + "/manifest.json");
  testing::internal::CaptureStderr();
  EXPECT_TRUE(Contains(ErrorOf([&] { NewestWholeCheckpoint(run_); }),
                       "none of its 1 checkpoints is whole"));
  testing::internal::GetCapturedStderr();
}

// Another user's directory; root, who may read all, takes part as nobody.
TEST_F(RunTest, ADirectoryThatMayNotBeReadIsNotCalledMissing) {
  constexpr uid_t kNobody = 65534;
  const TemporaryDirectory scratch;
  const std::string run = scratch / "run";
  std::filesystem::create_directory(run);
  ASSERT_EQ(chmod(run.c_str(), 0), 0);
  const uid_t user = geteuid();
  if (user == 0) {
    ASSERT_EQ(seteuid(kNobody), 0);
  }
  const std::string error = ErrorOf([&] { FindRun(run); });
  if (user == 0) {
    ASSERT_EQ(seteuid(user), 0);
  }
  chmod(run.c_str(), 0700);
  EXPECT_TRUE(Contains(error, "cannot read " + run)) << error;
  EXPECT_TRUE(Contains(error, "Permission denied")) << error;
}

TEST_F(RunTest, ChoosesCheckpointsByName) {
  const RunWriter writer(run_);
  WriteRunFiles(writer, TinyConfig(), "");
  Save(writer, 1, 1, 2.0, {.keep = 9});
  Save(writer, 2, 2, 1.0, {.keep = 9});
  Save(writer, 3, 3, 3.0, {.keep = 9});
  auto first_weight = [&](const std::string& which) {
    return LoadModel(run_, DType::kF32, ModelUse::kInference, which).weights()[0];
  };
  auto weight_of = [](int seed) { return Training(seed).model.weights()[0]; };
  EXPECT_EQ(first_weight("last"), weight_of(3));
  EXPECT_EQ(first_weight("best"), weight_of(2));
  EXPECT_EQ(first_weight("1"), weight_of(1));
  EXPECT_EQ(LoadModel(run_ + "/checkpoints/step-00000002/", DType::kF32, ModelUse::kInference)
                .weights()[0],
            weight_of(2));
  EXPECT_TRUE(
      Contains(ErrorOf([&] { first_weight("4"); }), "no checkpoint of step 4; there are: 1, 2, 3"));
  EXPECT_TRUE(Contains(ErrorOf([&] { first_weight("newest"); }), "expected last, best or a step"));
  EXPECT_TRUE(
      Contains(ErrorOf([&] { LoadModel(scratch_ / "none", DType::kF32, ModelUse::kInference); }),
               "no such run"));
}

TEST_F(RunTest, RefusesACheckpointOfAnotherModel) {
  const RunWriter writer(run_);
  const std::string path = Save(writer, 1, 1);
  ModelConfig other = TinyConfig();
  other.n_head = 1;  // all shapes are the same
  Training training(0, other);
  EXPECT_TRUE(Contains(ErrorOf([&] { LoadCheckpoint(path, training.model, training.moments()); }),
                       "weights of another model: n_head = 2, expected 1"));
  // The same pattern under another name is the same model.
  other = TinyConfig();
  other.dwa = "mask:11/111";
  Training same(0, other);
  EXPECT_EQ(ErrorOf([&] { LoadCheckpoint(path, same.model, same.moments()); }), "no error");
}

TEST_F(RunTest, OneWriterAtATime) {
  const RunWriter writer(run_);
  const std::string message = ErrorOf([&] { RunWriter second(run_); });
  EXPECT_TRUE(Contains(message, "run " + run_ + " is in use by another process")) << message;
}

TEST_F(RunTest, WriterClearsLeftovers) {
  { const RunWriter writer(run_); }
  fs::create_directories(run_ + "/checkpoints/.tmp-step-00000001/x");
  Overwrite(run_ + "/checkpoints/.tmp-step-00000001/model.safetensors", "x");
  Overwrite(run_ + "/.tmp-model.safetensors", "x");
  Overwrite(run_ + "/config.json.tmp-123", "x");
  Overwrite(run_ + "/notes.tmp-of-mine", "x");
  const RunWriter writer(run_);
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(run_)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"checkpoints", "notes.tmp-of-mine", "run.lock"}));
}

TEST_F(RunTest, RunFilesAreWrittenOnceAndCompared) {
  const RunWriter writer(run_);
  WriteRunFiles(writer, TinyConfig(), "{\"a\": 1}");
  WriteRunFiles(writer, TinyConfig(), "{\"a\": 1}");
  WriteRunFiles(writer, TinyConfig(), "");
  EXPECT_EQ(ReadFile(run_ + "/tokenizer.json"), "{\"a\": 1}");
  EXPECT_EQ(ReadConfig(run_), TinyConfig());
  EXPECT_TRUE(Contains(ErrorOf([&] { WriteRunFiles(writer, TinyConfig(), "{}"); }),
                       "tokenizer.json belongs to another run"));
  ModelConfig other = TinyConfig();
  other.seq_len = 9;
  EXPECT_TRUE(Contains(ErrorOf([&] { WriteRunFiles(writer, other, ""); }),
                       "config.json belongs to another run"));
}

TEST_F(RunTest, CreateRunMakesAWholeRunOrNone) {
  Training training(5);
  CreateRun(run_, training.model, "{}");
  EXPECT_EQ(LoadModel(run_, DType::kF32, ModelUse::kInference).weights()[0],
            training.model.weights()[0]);
  for (const VerifyResult& result : VerifyRun(run_)) EXPECT_EQ(result.problem, "") << result.path;
  EXPECT_TRUE(Contains(ErrorOf([&] { CreateRun(run_, training.model, ""); }), "exists already"));
  for (int fail_at = 0;; ++fail_at) {
    const std::string path = scratch_ / "other";
    int operations = 0;
    SetIoFaultForTesting([&](IoOperation operation, const std::string&) {
      return operation != IoOperation::kRemove && operations++ == fail_at ? ENOSPC : 0;
    });
    const std::string message = ErrorOf([&] { CreateRun(path, training.model, "{}"); });
    SetIoFaultForTesting({});
    if (message == "no error") break;
    EXPECT_TRUE(Contains(message, "No space left on device")) << message;
    if (FileExists(path)) {  // only the last sync failed
      EXPECT_EQ(LoadModel(path, DType::kF32, ModelUse::kInference).weights()[0],
                training.model.weights()[0]);
      fs::remove_all(path);
    }
    EXPECT_EQ(scratch_.List(), std::vector<std::string>{"run"});
    ASSERT_LT(fail_at, 100);
  }
}

TEST_F(RunTest, ConfigErrorsNameTheKey) {
  auto error_of = [](const std::string& text) {
    return ErrorOf([&] { ConfigFromJson(text, "config.json"); });
  };
  const std::string good = ConfigToJson(TinyConfig());
  EXPECT_EQ(ConfigFromJson(good, ""), TinyConfig());
  auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return error_of(text);
  };
  EXPECT_TRUE(Contains(with("\"n_head\"", "\"n_heads\""), "key 'n_head' is missing"));
  EXPECT_TRUE(Contains(with("\"n_head\": 2", "\"n_head\": 2, \"n_heda\": 1"),
                       "unknown key 'n_heda' (did you mean 'n_head'?)"));
  EXPECT_TRUE(Contains(with("\"n_head\": 2", "\"n_head\": 2.5"),
                       "'n_head' is 2.5, expected a whole number"));
  EXPECT_TRUE(Contains(with("\"n_head\": 2", "\"n_head\": 3"), "config.json: model.n_head: got 3"));
  EXPECT_TRUE(Contains(with("denseformer", "gpt2"), "\"model_type\" is not \"denseformer\""));
  EXPECT_TRUE(Contains(with("{", ""), "config.json: not JSON"));
  EXPECT_TRUE(Contains(with("false", "0"), "expected true or false"));
}

}  // namespace
}  // namespace denseformer
