// Every byte that a trainer keeps is checked, and a run does not resume on what was changed.
#include "train/verify.h"

#include <gtest/gtest.h>

#include "base/testing.h"
#include "io/import_export.h"
#include "io/seal.h"
#include "train/stored_options.h"
#include "train/testing.h"
#include "train/trainer.h"

namespace denseformer {
namespace {

class VerifyTest : public TrainingTest {
 protected:
  VerifyTest() {
    request_.run = scratch_ / "run";
    request_.options = ShortRun(data_, 4);
  }

  // Files with a problem.
  std::vector<std::string> Damaged() const {
    std::vector<std::string> paths;
    for (const VerifyResult& result : VerifyTraining(request_.run)) {
      if (!result.problem.empty()) {
        EXPECT_NE(result.problem.find(result.path), std::string::npos) << result.problem;
        paths.push_back(result.path.substr(request_.run.size() + 1));
      }
    }
    return paths;
  }
  std::string ResumeError(const TrainOptions& options, std::vector<std::string> forced = {}) {
    TrainRequest request = request_;
    request.resume = true;
    request.options = options;
    request.forced = std::move(forced);
    return ErrorOf([&] { Train(request); });
  }

  TrainRequest request_;
};

TEST_F(VerifyTest, EveryFlippedByteIsFound) {
  Train(request_);
  EXPECT_EQ(VerifyTraining(request_.run).size(), 4u);
  EXPECT_TRUE(Damaged().empty());
  for (const std::string name : {"train.toml", "metrics.jsonl", "alphas.jsonl", "summary.json"}) {
    const std::string path = request_.run + "/" + name, text = ReadFile(path);
    for (size_t at = 0; at < text.size(); at += 1 + text.size() / 97) {
      std::string changed = text;
      changed[at] ^= 1;
      WriteFileAtomic(path, changed);
      // A damaged summary cannot speak for the records that were written after the checkpoint.
      const std::vector<std::string> damaged = Damaged();
      EXPECT_EQ(damaged, std::vector<std::string>{name}) << name << " " << at;
    }
    WriteFileAtomic(path, text + "{}\n");
    EXPECT_EQ(Damaged(), std::vector<std::string>{name});
    WriteFileAtomic(path, text);
  }
  EXPECT_TRUE(Damaged().empty());
}

TEST_F(VerifyTest, ARunThatIsNotFinishedIsCheckedUpToItsCheckpoint) {
  request_.options.save_every = 2;
  Train(request_);
  std::filesystem::remove(request_.run + "/summary.json");
  EXPECT_TRUE(Damaged().empty());
  const std::string path = request_.run + "/metrics.jsonl", text = ReadFile(path);
  WriteFileAtomic(path, text + "{\"step\": 5}\n{\"st");
  EXPECT_TRUE(Damaged().empty());
  WriteFileAtomic(path, text + "not json\n");
  EXPECT_EQ(Damaged(), std::vector<std::string>{"metrics.jsonl"});
  WriteFileAtomic(path, text.substr(0, 100));
  EXPECT_EQ(Damaged(), std::vector<std::string>{"metrics.jsonl"});
}

TEST_F(VerifyTest, AnEditedConfigurationIsNotResumedSilently) {
  Train(request_);
  TrainOptions edited = ReadStoredOptions(request_.run);
  edited.lr = 0.5;
  edited.steps = 6;
  const std::string refused = ResumeError(edited);
  EXPECT_NE(
      refused.find("is not what the checkpoint of step 4 was trained with: optimizer.lr (0.5, "
                   "was 0.01), train.steps (6, was 4)"),
      std::string::npos)
      << refused;
  EXPECT_NE(ResumeError(edited, {"lr"}).find("train.steps"), std::string::npos);
  EXPECT_EQ(ReadStoredOptions(request_.run).steps, 4);  // nothing was written
  EXPECT_EQ(ResumeError(edited, {"lr", "steps"}), "no error");
  // What was forced once is the course of the run from there on.
  EXPECT_EQ(ResumeError(ReadStoredOptions(request_.run)), "no error");
  // What does not decide the course may be edited.
  edited = ReadStoredOptions(request_.run);
  edited.save_every = 1;
  EXPECT_EQ(ResumeError(edited), "no error");
}

TEST_F(VerifyTest, ChangedDataAreFoundWhateverMetaSays) {
  Train(request_);
  WriteTokens(data_ + "/train.bin", 20000, 500, 9);
  EXPECT_NE(ResumeError(request_.options).find("are not those that the run began with"),
            std::string::npos);
}

TEST_F(VerifyTest, WeightsThatNoCheckpointExplainsAreNotOverwritten) {
  Model model(request_.options.model, DType::kF32, ModelUse::kInference);
  model.Initialize(5);
  CreateRun(request_.run, model, "");
  const std::string weights = ReadFile(request_.run + "/model.safetensors");
  for (const bool resume : {false, true}) {
    TrainRequest request = request_;
    request.resume = resume;
    const std::string error = ErrorOf([&] { Train(request); });
    EXPECT_NE(error.find("--init"), std::string::npos) << error;
  }
  EXPECT_NE(ErrorOf([&] { ReadStoredOptions(request_.run); }).find("--init"), std::string::npos);
  EXPECT_EQ(ReadFile(request_.run + "/model.safetensors"), weights);
}

TEST_F(VerifyTest, WeightsPutIntoARunAreNotOverwritten) {
  Train(request_);
  const std::string path = request_.run + "/model.safetensors";
  Model model(request_.options.model, DType::kF32, ModelUse::kInference);
  model.Initialize(5);
  ExportModel(model, scratch_ / "other", ExportFormat::kNative, StoredType::kF32, "");
  const std::string own = ReadFile(path), other = ReadFile(scratch_ / "other/model.safetensors");
  WriteFileAtomic(path, other);
  TrainOptions longer = request_.options;
  longer.steps = 6;
  EXPECT_NE(ResumeError(longer, {"steps"}).find("no checkpoint of this run explains"),
            std::string::npos);
  EXPECT_EQ(ReadFile(path), other);
  // A copy of a checkpoint's file, or a damaged one, is no loss.
  WriteFileAtomic(path, own);
  EXPECT_EQ(UnexplainedWeights(request_.run), "");
  std::string damaged = own;
  damaged[damaged.size() / 2] ^= 1;
  WriteFileAtomic(path, damaged);
  EXPECT_EQ(ResumeError(longer, {"steps"}), "no error");
}

TEST_F(VerifyTest, DataAreFoundFromAnywhereAndAfterAMove) {
  const std::string here = std::filesystem::current_path().string();
  std::filesystem::create_directories(scratch_ / "a/runs");
  std::filesystem::rename(data_, scratch_ / "a/data");
  std::filesystem::current_path(scratch_ / "a");
  request_.run = "runs/x";
  request_.options.data = "data";
  Train(request_);
  std::filesystem::current_path(here);
  const std::string run = scratch_ / "a/runs/x";
  EXPECT_EQ(FindStoredData(run, "eval"), scratch_ / "a/data");
  EXPECT_EQ(ReadStoredOptions(run).data, scratch_ / "a/data");
  std::filesystem::rename(scratch_ / "a", scratch_ / "b");
  const std::string moved = scratch_ / "b/runs/x";
  EXPECT_EQ(std::filesystem::canonical(FindStoredData(moved, "eval")),
            std::filesystem::canonical(scratch_ / "b/data"));
  std::filesystem::remove_all(scratch_ / "b/data");
  const std::string error = ErrorOf([&] { FindStoredData(moved, "eval"); });
  EXPECT_NE(error.find("are not at"), std::string::npos) << error;
  EXPECT_NE(error.find("give --data DIR"), std::string::npos) << error;
}

}  // namespace
}  // namespace denseformer
