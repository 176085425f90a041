#include "cluster/simulate.h"

#include <gtest/gtest.h>

namespace denseformer {
namespace {

TEST(PipelineScheduleTest, OneForwardOneBackward) {
  const std::vector<PipelineAction> first = PipelineActions(0, 3, 4);
  EXPECT_EQ(first, (std::vector<PipelineAction>{{true, 0},
                                                {true, 1},
                                                {true, 2},
                                                {false, 0},
                                                {true, 3},
                                                {false, 1},
                                                {false, 2},
                                                {false, 3}}));
  EXPECT_EQ(PipelineActions(2, 3, 2),
            (std::vector<PipelineAction>{{true, 0}, {false, 0}, {true, 1}, {false, 1}}));
  EXPECT_EQ(PipelineActions(0, 4, 1), (std::vector<PipelineAction>{{true, 0}, {false, 0}}));
}

TEST(PipelineScheduleTest, KeepsAsManyMicroBatchesAsItSays) {
  for (int stages = 1; stages <= 5; ++stages) {
    for (int stage = 0; stage < stages; ++stage) {
      for (int micro_batches = 1; micro_batches <= 7; ++micro_batches) {
        int under_way = 0, most = 0;
        for (const PipelineAction& action : PipelineActions(stage, stages, micro_batches)) {
          under_way += action.forward ? 1 : -1;
          most = std::max(most, under_way);
        }
        EXPECT_EQ(under_way, 0);
        EXPECT_EQ(most, PipelineSlots(stage, stages, micro_batches));
      }
    }
  }
}

TEST(SimulateTest, EqualStagesWithoutTransferTimes) {
  // The known bubble of 1F1B: (S - 1) / (M + S - 1).
  for (const int stages : {1, 2, 4}) {
    for (const int micro_batches : {1, 4, 16}) {
      const Timeline timeline =
          SimulatePipeline(std::vector<PassSeconds>(stages, {1, 2}),
                           std::vector<CutSeconds>(static_cast<size_t>(stages) - 1), micro_batches);
      EXPECT_DOUBLE_EQ(timeline.end, 3.0 * (micro_batches + stages - 1));
      EXPECT_NEAR(timeline.bubble(), (stages - 1.0) / (micro_batches + stages - 1), 1e-12);
    }
  }
}

TEST(SimulateTest, TransfersDelayWhatNeedsThem) {
  // One micro-batch: forward, transfer, forward, backward, transfer, backward.
  const Timeline timeline = SimulatePipeline({{1, 2}, {3, 4}}, {{0.5, 0.25, 0.125}}, 1);
  EXPECT_DOUBLE_EQ(timeline.end, 1 + 0.625 + 3 + 4 + 0.375 + 2);
  EXPECT_DOUBLE_EQ(timeline.passes[1].begin, 1 + 0.625 + 3 + 4 + 0.375);
}

TEST(SimulateTest, ALinkCarriesOneMessageAtATime) {
  // A slow link decides: the second stage starts micro-batch m when m + 1 transfers are over.
  const Timeline timeline = SimulatePipeline({{1, 1}, {1, 1}}, {{10, 0, 0}}, 3);
  for (const Timeline::Pass& pass : timeline.passes) {
    if (pass.stage != 1 || !pass.action.forward) continue;
    EXPECT_GE(pass.begin, 1 + 10.0 * (pass.action.micro_batch + 1));
  }
}

TEST(SimulateTest, StagesOfAHostShareItsCores) {
  // Four stages on two cores: at full speed while at most two compute, at half with all four.
  const std::vector<PassSeconds> stages(4, {1, 2});
  const std::vector<CutSeconds> cuts(3);
  const double alone = SimulatePipeline(stages, cuts, 1).end;
  EXPECT_DOUBLE_EQ(SimulatePipeline(stages, cuts, 1, {4, 2}).end, alone);
  const Timeline shared = SimulatePipeline(stages, cuts, 64, {4, 2});
  EXPECT_GE(shared.end, 64 * 4 * 3 / 2.0);
  EXPECT_LT(shared.end, 1.05 * 64 * 4 * 3 / 2.0);
  // On two hosts of their own they do not.
  EXPECT_DOUBLE_EQ(SimulatePipeline(stages, cuts, 64, {2, 2}).end, 3.0 * (64 + 3));
  // Half a core for one stage.
  EXPECT_DOUBLE_EQ(SimulatePipeline({{1, 2}}, {}, 5, {1, 0.5}).end, 30);
}

}  // namespace
}  // namespace denseformer
