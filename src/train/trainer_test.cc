// The loop: resuming after any failure of the disk, accumulation, delayed DWA, losses that are not
// finite, what is kept.
#include "train/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/testing.h"
#include "train/diagnosis.h"
#include "train/testing.h"

namespace denseformer {
namespace {

class TrainerTest : public TrainingTest {
 protected:
  ~TrainerTest() override { SetIoFaultForTesting({}); }

  TrainRequest Request(const std::string& name) const {
    TrainRequest request;
    request.run = scratch_ / name;
    request.options = ShortRun(data_, 6);
    return request;
  }
  static std::vector<nlohmann::ordered_json> Metrics(const TrainRequest& request,
                                                     const char* key = "loss") {
    std::vector<nlohmann::ordered_json> found;
    for (auto& record : ReadJsonLines(request.run + "/metrics.jsonl")) {
      if (record.contains(key)) found.push_back(record);
    }
    return found;
  }
};

TEST_F(TrainerTest, EveryFailureOfTheDiskLeavesARunThatGoesOn) {
  const auto short_run = [this](const std::string& name) {
    TrainRequest request = Request(name);
    request.options.steps = 3;
    request.options.eval_every = 2;
    request.options.log_alphas_every = 3;
    return request;
  };
  TrainRequest whole = short_run("whole");
  int64_t operations = 0;
  SetIoFaultForTesting([&](IoOperation, const std::string&) { return ++operations, 0; });
  Train(whole);
  const auto expected = Content(whole.run);
  ASSERT_GT(operations, 100);

  int failures = 0;
  for (int64_t fail = 0; fail < operations; ++fail) {
    TrainRequest request = short_run("run");
    std::filesystem::remove_all(request.run);
    int64_t count = 0;
    std::string failed;
    SetIoFaultForTesting([&](IoOperation, const std::string& path) {
      if (count++ != fail) return 0;
      failed = path;
      return ENOSPC;
    });
    const std::string error = ErrorOf([&] { Train(request); });
    SetIoFaultForTesting({});
    if (error != "no error") {
      ++failures;
      EXPECT_NE(error.find("No space left on device"), std::string::npos) << error;
      EXPECT_EQ(error.find('\n'), std::string::npos) << error;
      for (const CheckpointInfo& checkpoint : ListCheckpoints(request.run)) {
        EXPECT_NO_THROW(VerifyCheckpoint(checkpoint.path)) << fail;
      }
      request.resume = FileExists(request.run + "/train.toml");
      ASSERT_EQ(ErrorOf([&] { Train(request); }), "no error") << fail << " " << failed;
    }
    ASSERT_EQ(Differences(Content(request.run), expected), "") << fail << " " << failed;
  }
  EXPECT_GT(failures, 50);
}

TEST_F(TrainerTest, ARunThatStopsAndOneThatDoesNotAreTheSame) {
  for (const char* precision : {"fp32", "bf16"}) {
    TrainRequest whole = Request(std::string("whole-") + precision);
    whole.options.precision = precision;
    whole.options.dropout = 0.1;
    whole.options.accumulate = 2;
    whole.options.clip = 0.5;
    whole.options.dwa_start = 2;
    Train(whole);
    // The disk fills up after step 5, between two checkpoints.
    TrainRequest parted = whole;
    parted.run = scratch_ / (std::string("parted-") + precision);
    SetIoFaultForTesting([&](IoOperation operation, const std::string& path) {
      return operation == IoOperation::kWrite && path.ends_with("metrics.jsonl") &&
                     FileExists(path) && ReadJsonLines(path).size() >= 6
                 ? ENOSPC
                 : 0;
    });
    EXPECT_NE(ErrorOf([&] { Train(parted); }), "no error");
    SetIoFaultForTesting({});
    EXPECT_EQ(ListCheckpoints(parted.run).back().step, 4);
    parted.resume = true;
    Train(parted);
    EXPECT_EQ(Differences(Content(parted.run), Content(whole.run)), "");
  }
}

TEST_F(TrainerTest, RecomputationChangesNothingAndMayChangeOnResume) {
  for (const char* precision : {"fp32", "bf16"}) {
    TrainRequest kept = Request(std::string("kept-") + precision);
    kept.options.precision = precision;
    kept.options.dropout = 0.1;
    kept.options.accumulate = 2;
    Train(kept);
    TrainRequest recomputed = kept;
    recomputed.run = scratch_ / (std::string("recomputed-") + precision);
    recomputed.options.recompute = true;
    Train(recomputed);
    EXPECT_EQ(Differences(Content(recomputed.run), Content(kept.run)), "");
    EXPECT_TRUE(ReadStoredOptions(recomputed.run).recompute);
    // Both resume, each in the other's way.
    for (TrainRequest* request : {&kept, &recomputed}) {
      OptionSources sources;
      sources.flags = {{"train.steps", "8"},
                       {"train.recompute", request->options.recompute ? "false" : "true"}};
      request->forced = {"steps"};
      request->options = ResolveResumed(ReadStoredOptions(request->run), sources, request->forced);
      request->resume = true;
      Train(*request);
    }
    EXPECT_NE(kept.options.recompute, recomputed.options.recompute);
    EXPECT_EQ(Differences(Content(recomputed.run), Content(kept.run)), "");
  }
}

TEST_F(TrainerTest, EveryMixerResumesExactly) {
  const std::array<const char*, 3> mixers[] = {{"static", "rv", "none"},
                                               {"dynamic", "r", "none"},
                                               {"dynamic", "rqkv", "prepost"},
                                               {"attention", "rv", "none"},
                                               {"attnres", "r", "none"}};
  for (const auto& [mixer, streams, norm] : mixers) {
    const std::string name = std::string(mixer) + "-" + streams + "-" + norm;
    TrainRequest whole = Request("whole-" + name);
    whole.options.model.mixer = mixer;
    whole.options.model.streams = streams;
    whole.options.model.mixer_norm = norm;
    whole.options.schedule = "constant";
    whole.options.warmup = 0;
    whole.options.steps = 4;
    whole.options.dropout = 0.1;
    whole.options.eval_final = false;
    TrainRequest parted = whole;
    parted.run = scratch_ / ("parted-" + name);
    parted.options.steps = 2;
    Train(whole);
    Train(parted);
    OptionSources sources;
    sources.flags = {{"train.steps", "4"}};
    parted.forced = {"steps"};
    parted.options = ResolveResumed(ReadStoredOptions(parted.run), sources, parted.forced);
    parted.resume = true;
    Train(parted);
    for (const char* part : {"model", "weights", "moments"}) {
      EXPECT_EQ(Content(whole.run).at(part) == Content(parted.run).at(part), true)
          << name << " " << part;
    }
    const auto losses = Metrics(whole);
    EXPECT_LT(losses.back()["loss"], losses.front()["loss"]) << name;
  }
}

TEST_F(TrainerTest, TheDiagnosisNamesParametersOfMixers) {
  TrainOptions options = Request("unused").options;
  options.model.mixer = "dynamic";
  Model model(options.model, DType::kF32, ModelUse::kTraining);
  model.Initialize(1);
  Activations activations(model, 1, 4, ModelUse::kTraining);
  const std::vector<int32_t> tokens = {1, 2, 3, 4};
  model.tensors().mixers[2].w1.f32()[5] = NAN;
  EXPECT_EQ(FirstBadTensor(model, {tokens, tokens, 1, 4}, activations),
            "weight dwa_modules.mixers.1.w1.weight (element 5 is nan)");
}

TEST_F(TrainerTest, ThreadsDoNotChangeTheResult) {
  for (const std::string precision : {"fp32", "bf16"}) {
    std::map<std::string, std::string> expected;
    for (const int threads : {1, 2, 3}) {
      SetNumThreads(threads);
      TrainRequest request = Request(fmt::format("{}-{}", precision, threads));
      request.options.precision = precision;
      request.options.dropout = 0.1;
      request.options.steps = 3;
      Train(request);
      if (threads == 1) expected = Content(request.run);
      EXPECT_EQ(Differences(Content(request.run), expected), "") << precision << " " << threads;
    }
  }
}

TEST_F(TrainerTest, AccumulationGivesTheSameLosses) {
  TrainRequest once = Request("once"), parts = Request("parts");
  parts.options.accumulate = 4;
  Train(once);
  Train(parts);
  const auto a = Metrics(once), b = Metrics(parts);
  ASSERT_EQ(a.size(), 6u);
  ASSERT_EQ(b.size(), 6u);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i]["loss"].get<double>(), b[i]["loss"].get<double>(), 2e-5);
    EXPECT_NEAR(a[i]["grad_norm"].get<double>(), b[i]["grad_norm"].get<double>(), 2e-4);
  }
}

TEST_F(TrainerTest, DelayedDwaStaysAtTheIdentity) {
  TrainRequest request = Request("run");
  request.options.dwa_start = 4;
  request.options.log_alphas_every = 1;
  Train(request);
  const auto snapshots = ReadJsonLines(request.run + "/alphas.jsonl");
  ASSERT_EQ(snapshots.size(), 7u);
  for (int step = 0; step <= 4; ++step) {
    EXPECT_EQ(snapshots[step]["alphas"], snapshots[0]["alphas"]) << step;
  }
  EXPECT_EQ(snapshots[0]["alphas"]["4"], nlohmann::ordered_json({0.0, 0.0, 1.0}));
  EXPECT_NE(snapshots[5]["alphas"], snapshots[0]["alphas"]);
}

TEST_F(TrainerTest, LearnsAndDropoutIsOffAtEvaluation) {
  TrainRequest request = Request("run");
  request.options.steps = 60;
  request.options.dropout = 0.2;
  request.options.save_every = 0;
  const auto summary = Train(request);
  EXPECT_LT(summary["validation"]["loss"].get<double>(), 5.8);  // from log 512 = 6.2
  // The last validation on the sample is of the same weights as the stream: close to it.
  EXPECT_NEAR(Metrics(request, "val_loss").back()["val_loss"].get<double>(),
              summary["validation"]["loss"].get<double>(), 0.3);
}

TEST_F(TrainerTest, ALossThatIsNotFiniteEndsTheRunWithADiagnosis) {
  TrainRequest request = Request("run");
  request.options.lr = 1e38;
  request.options.warmup = 0;
  request.options.steps = 20;
  request.options.max_bad_steps = 3;
  const std::string error = ErrorOf([&] { Train(request); });
  EXPECT_EQ(error.substr(0, 69),
            "train: loss or gradient not finite in 3 steps in a row, up to step 4 ");
  EXPECT_NE(error.find("first bad tensor: "), std::string::npos) << error;
  EXPECT_EQ(error.find("no tensor"), std::string::npos) << error;
  EXPECT_NE(error.find("newest checkpoint: step 2"), std::string::npos) << error;
  const auto metrics = Metrics(request);
  EXPECT_EQ(metrics.size(), 3u);
  EXPECT_FALSE(metrics[0].contains("skipped"));
  EXPECT_TRUE(metrics[1]["skipped"].get<bool>());
  EXPECT_TRUE(metrics[1]["loss"].is_null());
}

TEST_F(TrainerTest, SkippedStepsAreCountedAndLeaveTheWeightsAlone) {
  // One step's update is so large that all losses after it are bad; the weights of the checkpoint
  // at step 2 and of that at step 4 are then the same.
  TrainRequest request = Request("run");
  request.options.lr = 1e38;
  request.options.warmup = 0;
  request.options.max_bad_steps = 100;
  request.options.eval_every = 0;
  request.options.eval_final = false;
  request.options.save_keep = 10;
  const auto summary = Train(request);
  EXPECT_EQ(summary["skipped_steps"], 5);
  EXPECT_EQ(ReadFile(request.run + "/checkpoints/step-00000002/optimizer.safetensors"),
            ReadFile(request.run + "/checkpoints/step-00000006/optimizer.safetensors"));
}

TEST_F(TrainerTest, KeepsTheNewestAndTheBest) {
  TrainRequest request = Request("run");
  request.options.steps = 12;
  request.options.save_keep = 1;
  request.options.eval_every = 2;
  const auto summary = Train(request);
  const int64_t best = summary["best"]["step"].get<int64_t>();
  std::vector<int64_t> steps;
  for (const CheckpointInfo& checkpoint : ListCheckpoints(request.run)) {
    steps.push_back(checkpoint.step);
  }
  EXPECT_EQ(steps.back(), 12);
  EXPECT_EQ(BestCheckpoint(request.run)->step, best);
  EXPECT_TRUE(std::count(steps.begin(), steps.end(), best) == 1);
  EXPECT_LE(steps.size(), 2u);
}

TEST_F(TrainerTest, NeverASilentStartAtStepZero) {
  TrainRequest request = Request("run");
  Train(request);
  EXPECT_NE(ErrorOf([&] { Train(request); }).find("holds a run already"), std::string::npos);
  std::filesystem::remove_all(request.run + "/checkpoints");
  for (const bool resume : {false, true}) {
    request.resume = resume;
    EXPECT_NE(ErrorOf([&] { Train(request); }).find("has recorded steps but no checkpoint"),
              std::string::npos);
  }
}

TEST_F(TrainerTest, AFinishedRunIsNotRepeated) {
  TrainRequest request = Request("run");
  const auto first = Train(request);
  const std::string metrics = ReadFile(request.run + "/metrics.jsonl");
  request.resume = true;
  EXPECT_EQ(Train(request), first);
  EXPECT_EQ(ReadFile(request.run + "/metrics.jsonl"), metrics);
}

TEST_F(TrainerTest, ForcedStepsGoOn) {
  TrainRequest request = Request("run");
  Train(request);
  request.resume = true;
  request.options.steps = 8;
  request.forced = {"steps"};
  EXPECT_EQ(Train(request)["steps"], 8);
  EXPECT_EQ(Metrics(request).size(), 8u);
  EXPECT_EQ(ReadStoredOptions(request.run).steps, 8);
}

}  // namespace
}  // namespace denseformer
