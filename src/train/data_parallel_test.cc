// Ranks as threads: a step that several ranks share is the step of one process.
#include "train/data_parallel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/error_testing.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "base/testing.h"
#include "dist/testing.h"
#include "model/testing.h"
#include "train/ranks_testing.h"

namespace denseformer {
namespace {

TEST(GradientBuckets, AreTheBufferOnceInTheOrderOfTheBackwardPass) {
  for (const char* dwa : {"none", "1x1", "2x3"}) {
    const ModelConfig config = SmallConfig(dwa, /*gains=*/true, /*bias=*/true);
    const ParameterTable table(config, DepthPattern::Parse(config.dwa, config.n_layer));
    for (const BucketSizes& sizes :
         {BucketSizes{1, 1000}, BucketSizes{20000, 30000}, BucketSizes()}) {
      const std::vector<GradientBucket> buckets = MakeBuckets(table, sizes);
      std::vector<int> ready(static_cast<size_t>(table.buffer_size()), -1);
      int last = config.n_layer;
      for (const GradientBucket& bucket : buckets) {
        EXPECT_GT(bucket.range.size(), 0);
        EXPECT_LE(bucket.range.size(), sizes.most + 16);
        EXPECT_LE(bucket.ready_at, last);
        last = bucket.ready_at;
        for (int64_t i = bucket.range.begin; i < bucket.range.end; ++i) {
          EXPECT_EQ(ready[static_cast<size_t>(i)], -1);
          ready[static_cast<size_t>(i)] = bucket.ready_at;
        }
      }
      for (const Parameter& p : table.all()) {
        // Not before its gradient is final.
        EXPECT_LE(ready[static_cast<size_t>(p.offset)], p.mixes() ? 0 : p.block) << p.name;
      }
      EXPECT_EQ(std::count(ready.begin(), ready.end(), -1), 0);
    }
  }
}

struct Shape {
  std::string dwa, mixer = "static", streams = "r";
};

TrainOptions StepOptions(const Shape& shape) {
  TrainOptions options = PresetOptions("test");
  options.model = SmallConfig(shape.dwa);
  options.model.mixer = shape.mixer;
  options.model.streams = shape.streams;
  options.batch_size = 10;
  options.accumulate = 2;
  options.dropout = 0.1;
  options.clip = 1;
  options.dwa_start = 3;
  return options;
}

constexpr int kSteps = 20;
constexpr int64_t kLength = 16;

// A pass of step `step`: some targets are ignored, unevenly over the sequences.
RandomBatch PassOf(const TrainOptions& options, int64_t step, int pass) {
  RandomBatch batch(options.model, options.pass_sequences(), kLength,
                    static_cast<uint64_t>(100 * step + pass));
  for (int i = 0; i < 20; ++i) batch.targets[static_cast<size_t>(i)] = kIgnoreTarget;
  return batch;
}

struct Trained {
  std::vector<double> losses, norms;
  std::vector<float> weights;
};

// kSteps steps as one rank of `world`.
Trained TrainRank(const TrainOptions& options, Communicator& world, DType compute = DType::kF32) {
  Trained result;
  Model model = RandomModel(options.model, compute);
  const SampleRange share = PassShare(options.pass_sequences(), world);
  Activations activations(model, share.count, kLength, ModelUse::kTraining);
  std::optional<DataParallel> parallel;
  // Small buckets, so that several are under way.
  if (world.size() > 1) parallel.emplace(world, model, BucketSizes{1, 3000});
  TrainStep step(model, activations, options, {parallel ? &*parallel : nullptr, {}});
  std::optional<RandomBatch> pass_batch;
  for (int64_t s = 0; s < kSteps; ++s) {
    const StepResult taken = step.Run(s, 1e-3, [&](int64_t at, int pass) {
      pass_batch.emplace(PassOf(options, at, pass));
      Batch batch = pass_batch->batch();
      const size_t first = static_cast<size_t>(share.first * kLength);
      const size_t rows = static_cast<size_t>(share.count * kLength);
      batch.pass_targets = CountTargets(batch.targets);
      batch.tokens = batch.tokens.subspan(first, rows);
      batch.targets = batch.targets.subspan(first, rows);
      batch.sequences = share.count;
      batch.first_sequence = share.first;
      return batch;
    });
    EXPECT_TRUE(taken.updated);
    result.losses.push_back(taken.loss);
    result.norms.push_back(taken.norm);
  }
  // Packed again from the whole masters, the weights must give what they gave.
  const RandomBatch batch = PassOf(options, kSteps, 0);
  Activations evaluation(model, options.pass_sequences(), kLength, ModelUse::kInference);
  const double before = ForwardLoss(model, batch.batch(), evaluation);
  if (parallel) {
    parallel->WithWholeWeights([&] {
      if (world.first()) result.weights.assign(model.weights().begin(), model.weights().end());
    });
    std::copy(result.weights.begin(), result.weights.end(), model.weights().begin());
    parallel->SendWeights();
  } else {
    result.weights.assign(model.weights().begin(), model.weights().end());
  }
  EXPECT_EQ(ForwardLoss(model, batch.batch(), evaluation), before);
  return result;
}

Trained TrainRanks(const TrainOptions& options, int ranks, DType compute = DType::kF32) {
  std::vector<Trained> results(static_cast<size_t>(ranks));
  RunRanks(ranks, [&](Communicator& world) {
    results[static_cast<size_t>(world.rank())] = TrainRank(options, world, compute);
  });
  for (const Trained& other : results) {
    EXPECT_EQ(other.losses, results[0].losses);
    EXPECT_EQ(other.norms, results[0].norms);
  }
  return results[0];
}

class DataParallelTest : public testing::TestWithParam<Shape> {
  const ThreadsGuard threads_{1};
};

TEST_P(DataParallelTest, EqualsOneProcess) {
  const TrainOptions options = StepOptions(GetParam());
  const Trained one = TrainRank(options, *MakeSingleCommunicator());
  for (const int ranks : {2, 3}) {
    const Trained several = TrainRanks(options, ranks);
    for (size_t s = 0; s < kSteps; ++s) {
      EXPECT_NEAR(several.losses[s], one.losses[s], 1e-6 * one.losses[s]) << s << " on " << ranks;
      EXPECT_NEAR(several.norms[s], one.norms[s], 1e-4 * one.norms[s]) << s << " on " << ranks;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Topologies, DataParallelTest,
                         testing::Values(Shape{"none"}, Shape{"1x1"}, Shape{"4x5"}, Shape{"last:4"},
                                         Shape{"final"}, Shape{"2x3"}, Shape{"1x1", "dynamic"},
                                         Shape{"2x1", "attention", "rqkv"}));

TEST(DataParallelStep, RepeatsBitForBit) {
  const ThreadsGuard threads(1);
  const TrainOptions options = StepOptions({"2x1"});
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const Trained first = TrainRanks(options, 4, compute);
    const Trained second = TrainRanks(options, 4, compute);
    EXPECT_TRUE(SameBits(first.weights, second.weights));
    EXPECT_EQ(first.losses, second.losses);
    EXPECT_EQ(first.norms, second.norms);
  }
}

// Masters that no pass reads are given back; in bf16 the result is still that of one process.
TEST(DataParallelStep, SharesTheMastersOfBf16) {
  const ThreadsGuard threads(1);
  const TrainOptions options = StepOptions({"2x1"});
  const Trained one = TrainRank(options, *MakeSingleCommunicator(), DType::kBF16);
  const Trained several = TrainRanks(options, 3, DType::kBF16);
  for (size_t s = 0; s < kSteps; ++s) {
    EXPECT_NEAR(several.losses[s], one.losses[s], 1e-3 * one.losses[s]) << s;
  }
  EXPECT_LT(RelativeError<float>(several.weights, one.weights), 0.02);
}

TEST(DataParallelStep, SendsTheBytesOfThePlan) {
  const ThreadsGuard threads(1);
  const TrainOptions options = StepOptions({"2x1"});
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    constexpr int kRanks = 3;
    std::vector<int64_t> sent(kRanks);
    RunRanks(kRanks, [&](Communicator& world) {
      Model model = RandomModel(options.model, compute);
      DataParallel parallel(world, model);
      double loss = 1;
      parallel.Reduce(model.gradients(), loss);
      parallel.GatherWeights(model);
      EXPECT_EQ(loss, kRanks);
      // Besides the loss.
      sent[static_cast<size_t>(world.rank())] =
          world.traffic().total_sent() - (kRanks - 1) * static_cast<int64_t>(sizeof(double));
    });
    const Model model(options.model, compute, ModelUse::kTraining);
    const std::vector<StepTraffic> plan = TrafficOf(model.table(), compute, kRanks);
    for (size_t r = 0; r < kRanks; ++r) EXPECT_EQ(sent[r], plan[r].total()) << r;
    const StepTraffic busiest = BusiestTraffic(model.table(), compute, kRanks);
    EXPECT_EQ(busiest.total(), *std::max_element(sent.begin(), sent.end()));
    EXPECT_EQ(compute == DType::kBF16, 10 * busiest.weights < 9 * busiest.gradients);
  }
}

TEST(DataParallelStep, NeedsASequenceForEachRank) {
  RunRanks(3, [](Communicator& world) {
    EXPECT_EQ(PassShare(7, world).count, world.rank() == 0 ? 2 : world.rank() == 1 ? 2 : 3);
    ExpectError(ErrorCode::kUsage,
                "train: 2 sequences per pass (train.batch_size / train.accumulate) on 3 ranks",
                [&] { PassShare(2, world); });
  });
}

TEST_F(TrainRanksTest, AnyNumberOfRanksContinuesTheSameCurve) {
  const TrainRequest whole = Request("whole", 8);
  Train(whole);
  // 3 ranks, then 1, then 2, each from the checkpoint of the one before.
  TrainRequest parts = Request("parts", 8);
  for (const auto& [ranks, stop] : {std::pair<int, int64_t>{3, 2}, {1, 6}, {2, 8}}) {
    TrainRequest part = parts;
    part.resume = stop > 2;
    part.options.steps = stop;
    part.forced = {"steps"};
    // The schedule is that of the whole run.
    part.options.schedule = "constant";
    Run(part, ranks);
  }
  TrainRequest constant = Request("constant", 8);
  constant.options.schedule = "constant";
  Train(constant);
  const std::vector<double> expected = Values(constant, "loss"), got = Values(parts, "loss");
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-6 * expected[i]) << i;
  // And all of it on 3.
  const TrainRequest three = Request("three", 8);
  Run(three, 3);
  ExpectClose(three, whole);
}

TEST_F(TrainRanksTest, ARunInPartsHasTheBitsOfAWholeOneOnAsManyRanks) {
  for (const std::string precision : {"fp32", "bf16"}) {
    TrainRequest whole = Request("whole-" + precision, 6);
    whole.options.precision = precision;
    Run(whole, 2);
    TrainRequest parts = whole;
    parts.run = scratch_ / ("parts-" + precision);
    Run(parts, 2);
    CutOffAfter(parts, 4);
    parts.resume = true;
    Run(parts, 2);
    EXPECT_EQ(Differences(Content(whole.run), Content(parts.run)), "");
  }
}

TEST_F(TrainRanksTest, RefusesRanksThatDiffer) {
  const TrainRequest request = Request("run", 4);
  ExpectError(ErrorCode::kInvalid, "options: rank 1 has 'seed = 5', rank 0 has 'seed = 1'", [&] {
    RunRanks(2, [&](Communicator& world) {
      TrainRequest mine = request;
      if (world.rank() == 1) mine.options.seed = 5;
      Train(mine, world);
    });
  });
  EXPECT_FALSE(FileExists(request.run));
}

TEST_F(TrainRanksTest, ALossThatIsNotFiniteOnOneRankStopsAll) {
  TrainRequest request = Request("run", 20);
  request.options.lr = 1e30;
  request.options.warmup = 0;
  request.options.max_bad_steps = 2;
  const std::string error = ErrorOf([&] { Run(request, 2); });
  EXPECT_NE(error.find("not finite in 2 steps in a row"), std::string::npos) << error;
}

}  // namespace
}  // namespace denseformer
