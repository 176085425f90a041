// The parts of forward.h and backward.h, run stage by stage, give what the whole pass gives.
#include <gtest/gtest.h>

#include "model/backward.h"
#include "model/head.h"
#include "model/testing.h"

namespace denseformer {
namespace {

class StagesTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Recompute, StagesTest, testing::Bool());

TEST_P(StagesTest, SameBitsAsTheWholePass) {
  const bool recompute = GetParam();
  for (const char* dwa : {"none", "1x1", "2x3"}) {
    const Model model = RandomModel(SmallConfig(dwa, /*gains=*/true, /*bias=*/true));
    const RandomBatch batch(model.config(), 2, 13, 3);
    const DropoutOptions dropout = {0.1f, 7, 5};
    Activations a(model, 2, 13, ModelUse::kTraining, recompute);
    const double loss = ForwardBackward(model, batch.batch(), dropout, 1, Gradients::kReplace, a);
    const std::vector<float> whole(model.gradients().begin(), model.gradients().end());
    std::fill(model.gradients().begin(), model.gradients().end(), 0.0f);

    // Recomputation finds only the newest block in place, so it takes all blocks as one stage.
    const std::vector<BlockRange> stages = recompute
                                               ? std::vector<BlockRange>{{1, 6}}
                                               : std::vector<BlockRange>{{1, 2}, {3, 3}, {4, 6}};
    InputForward(model, batch.tokens, dropout, a, {});
    for (const BlockRange& stage : stages) BlocksForward(model, stage, dropout, a);
    StartBackward(model, Gradients::kReplace, a);
    const int64_t targets = CountTargets(batch.targets);
    const std::span<float> losses = std::span<float>(a.losses).first(a.rows());
    HeadForwardBackward(model, a, batch.targets, 1.0f / static_cast<float>(targets),
                        Gradients::kReplace, losses);
    HeadNormBackward(model, a);
    for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
      BlocksBackward(model, *stage, dropout, Gradients::kReplace, a);
    }
    InputBackward(model, batch.tokens, dropout, Gradients::kReplace, a);
    EXPECT_EQ(MeanLoss(losses, targets), loss) << dwa;
    EXPECT_TRUE(SameBits(whole, {model.gradients().begin(), model.gradients().end()})) << dwa;
  }
}

}  // namespace
}  // namespace denseformer
