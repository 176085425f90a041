// Pipelines of ranks that are threads: losses and gradients as in one process, bytes as planned.
#include "train/pipeline.h"

#include <gtest/gtest.h>

#include "base/error_testing.h"
#include "dist/collectives.h"
#include "dist/testing.h"
#include "model/testing.h"
#include "train/rank_grid.h"
#include "train/stage_state.h"

namespace denseformer {
namespace {

constexpr int kPasses = 5;
constexpr int64_t kSequences = 2, kLength = 7;

struct Whole {
  explicit Whole(const ModelConfig& config, bool recompute) : model(RandomModel(config)) {
    for (int pass = 0; pass < kPasses; ++pass) {
      batches.emplace_back(config, kSequences, kLength, pass + 1, /*ignore_every=*/4);
    }
    Activations a(model, kSequences, kLength, ModelUse::kTraining, recompute);
    for (int pass = 0; pass < kPasses; ++pass) {
      const PipelinePass p = Pass(pass);
      loss += ForwardBackward(model, p.batch, p.dropout, p.scale,
                              pass == 0 ? Gradients::kReplace : Gradients::kAdd, a) /
              kPasses;
    }
  }
  PipelinePass Pass(int pass) const {
    return {batches[pass].batch(), {0.1f, 7, static_cast<uint64_t>(pass)}, 1.0f / kPasses};
  }

  Model model;
  std::vector<RandomBatch> batches;
  double loss = 0;
};

class PipelineTest : public testing::TestWithParam<bool> {
 protected:
  const ThreadsGuard threads_{1};
};
INSTANTIATE_TEST_SUITE_P(Recompute, PipelineTest, testing::Bool());

TEST_P(PipelineTest, GradientsAsInOneProcess) {
  for (const char* dwa : {"none", "1x1", "2x3", "last:3"}) {
    const Whole whole(SmallConfig(dwa, /*gains=*/true, /*bias=*/true), GetParam());
    const std::vector<Stage> plan = PlanStages(whole.model.pattern(), {1, 4});
    std::vector<float> gathered(whole.model.gradients().size());
    double loss = 0;
    RunRanks(3, [&](Communicator& stages) {
      Model model(whole.model.config(), DType::kF32, ModelUse::kTraining,
                  &plan[static_cast<size_t>(stages.rank())]);
      StageState state(stages, model.config(), plan);
      state.Scatter(stages.first() ? whole.model.weights() : std::span<float>(), model.weights());
      model.WeightsChanged();
      Pipeline pipeline(model, stages, kPasses, kSequences, kLength, GetParam());
      const auto pass = [&](int m) { return whole.Pass(m); };
      // The first step's memory must not be seen in the second.
      for (int step = 0; step < 2; ++step) {
        const double mine = pipeline.ForwardBackward(kPasses, pass);
        if (model.stage().last()) loss = mine;
      }
      pipeline.SumSharedGradients();
      state.Gather(model.gradients(), stages.first() ? std::span(gathered) : std::span<float>());
    });
    EXPECT_NEAR(loss, whole.loss, 1e-6 * whole.loss) << dwa;
    for (const Parameter& p : whole.model.table().all()) {
      EXPECT_LT(RelativeError(Slice<float>(gathered, p),
                              Slice<float>(std::span<const float>(whole.model.gradients()), p)),
                2e-5)
          << dwa << " " << p.name;
    }
  }
}

TEST(PipelineTest, BytesOfTheFortyEightBlocks) {
  const ThreadsGuard threads(1);
  ModelConfig config = SmallConfig("none");
  config.n_layer = 48;
  config.n_head = 1;
  config.n_embd = 8;
  struct Case {
    const char* dwa;
    std::vector<int64_t> tensors;
  };
  for (const Case& c : {Case{"4x5", {7, 5, 2}}, Case{"1x1", {13, 24, 12}}}) {
    config.dwa = c.dwa;
    const Whole whole(config, /*recompute=*/false);
    const std::vector<Stage> plan = PlanStages(whole.model.pattern(), EvenCuts(48, 4));
    std::vector<Traffic> traffic(4);
    RunRanks(4, [&](Communicator& stages) {
      const Model model(config, DType::kF32, ModelUse::kTraining,
                        &plan[static_cast<size_t>(stages.rank())]);
      Pipeline pipeline(model, stages, kPasses, kSequences, kLength, /*recompute=*/false);
      pipeline.ForwardBackward(kPasses, [&](int m) { return whole.Pass(m); });
      traffic[static_cast<size_t>(stages.rank())] = stages.traffic();
    });
    const int64_t tensor = kPasses * kSequences * kLength * 8 * 4;
    for (size_t cut = 0; cut < 3; ++cut) {
      // Forward from stage `cut`, backward to it, both besides the stream; to nobody else.
      EXPECT_EQ(traffic[cut].sent[cut + 1], tensor * (1 + c.tensors[cut])) << c.dwa;
      EXPECT_EQ(traffic[cut].received[cut + 1], tensor * (1 + c.tensors[cut])) << c.dwa;
      EXPECT_EQ(traffic[cut + 1].sent[cut], traffic[cut].received[cut + 1]);
    }
    EXPECT_EQ(traffic[0].sent[2] + traffic[0].sent[3] + traffic[3].sent[0], 0);
  }
}

TEST(PipelineTest, LossesOfTheLastStage) {
  const ThreadsGuard threads(1);
  const Whole whole(SmallConfig("2x3"), /*recompute=*/false);
  const std::vector<Stage> plan = PlanStages(whole.model.pattern(), {3});
  const int64_t rows = kSequences * kLength;
  Activations a(whole.model, kSequences, kLength, ModelUse::kInference);
  RunRanks(2, [&](Communicator& stages) {
    Model model(whole.model.config(), DType::kF32, ModelUse::kTraining,
                &plan[static_cast<size_t>(stages.rank())]);
    StageState state(stages, model.config(), plan);
    state.Scatter(stages.first() ? whole.model.weights() : std::span<float>(), model.weights());
    model.WeightsChanged();
    Pipeline pipeline(model, stages, 2, kSequences, kLength, /*recompute=*/false);
    std::vector<float> losses(rows), expected(rows);
    std::vector<uint8_t> correct(rows), expected_correct(rows);
    for (int pass = 0; pass < kPasses; ++pass) {
      pipeline.ForwardLoss(whole.batches[pass].batch(), losses, correct);
      if (!model.stage().last()) continue;
      ForwardLoss(whole.model, whole.batches[pass].batch(), a, expected, expected_correct);
      EXPECT_LT(RelativeError<float>(losses, expected), 1e-5);
      EXPECT_EQ(correct, expected_correct);
    }
  });
}

TEST(RankGridTest, CopiesAndStages) {
  TrainOptions options;
  options.model = SmallConfig("2x3");
  RunRanks(6, [&](Communicator& world) {
    const RankGrid grid(world, options, {3, {2, 3}});
    EXPECT_EQ(grid.stages()->rank(), world.rank() % 3);
    EXPECT_EQ(grid.copies().rank(), world.rank() / 3);
    EXPECT_EQ(grid.stage().index, world.rank() % 3);
    EXPECT_EQ(grid.DescribeBlocks(), "1 to 2, 3 to 3, 4 to 6");
    EXPECT_EQ(Exchange(grid.copies(), world.rank()).front(), world.rank() % 3);
  });
}

TEST(RankGridTest, SaysWhatIsWrong) {
  TrainOptions options;
  options.model = SmallConfig("2x3");
  const std::unique_ptr<Communicator> one = MakeSingleCommunicator();
  const auto make = [&](const PipelineRequest& request) { RankGrid(*one, options, request); };
  ExpectError(ErrorCode::kUsage, "--pipeline 2 on 1 ranks, expected a multiple of 2", [&] {
    make({2, {}});
  });
  ExpectError(ErrorCode::kUsage, "got 7 stages, expected 1 to 6", [&] { make({7, {}}); });
  ExpectError(ErrorCode::kUsage, "--cuts goes with --pipeline", [&] { make({1, {2}}); });
  ExpectError(ErrorCode::kUsage, "--cuts 4,2, expected 2 ascending numbers", [&] {
    RunRanks(3, [&](Communicator& world) { RankGrid(world, options, {3, {4, 2}}); });
  });
  EXPECT_EQ(ParseCuts("2,14"), (std::vector<int>{2, 14}));
  ExpectError(ErrorCode::kUsage, "--cuts", [] { ParseCuts("2,x"); });
}

}  // namespace
}  // namespace denseformer
