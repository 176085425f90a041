#include "analysis/depth_mask.h"

#include <gtest/gtest.h>

#include "model/testing.h"

namespace denseformer {
namespace {

DepthPattern Dense(int depth) { return DepthPattern::Parse("1x1", depth); }

TEST(DepthMaskTest, KeepsEverythingAtFirst) {
  for (const char* spec : {"1x1", "4x5", "last:2", "final", "none"}) {
    const DepthPattern pattern = DepthPattern::Parse(spec, 7);
    const DepthMask mask(pattern);
    EXPECT_EQ(mask.Pattern(), pattern) << spec;
    EXPECT_EQ(mask.count(), pattern.weight_count()) << spec;
  }
}

// A module whose only source is its own output is no average of older ones.
TEST(DepthMaskTest, AModuleOfItsOwnOutputAlone) {
  const DepthMask mask(DepthPattern::Parse("8x2", 4));
  EXPECT_EQ(mask.count(), 0);
  EXPECT_EQ(mask.Pattern().module_count(), 0);
}

TEST(DepthMaskTest, KeepsTheLargestScores) {
  DepthMask mask(Dense(3));  // modules of 1, 2 and 3 older outputs
  // The module after block 2 as a whole would be one weight too many.
  mask.KeepLargest({{}, {5}, {1, 2}, {3, 9, 4}}, 7);
  EXPECT_EQ(mask.Pattern().ToString(), "mask:11/011/0111");
  DepthMask other(Dense(3));
  const DepthMask::Scores scores = {{}, {0}, {9, 9}, {2, 9, 1}};
  other.KeepLargest(scores, 4);
  EXPECT_EQ(other.Pattern().ToString(), "mask:00/011/0101");
  // Three are not to be had from two modules of one older output each.
  other.KeepLargest(scores, 3);
  EXPECT_EQ(other.Pattern().ToString(), "mask:00/000/0101");
  other.KeepLargest(scores, 1);
  EXPECT_EQ(other.count(), 0);
}

TEST(DepthMaskTest, EveryNumberOfWeights) {
  for (int64_t weights = 2; weights <= 35; ++weights) {
    DepthMask mask(Dense(7));
    DepthMask::Scores scores = mask.Zeros();
    uint32_t random = 1;
    for (auto& row : scores) {
      for (double& score : row) score = (random = random * 1664525 + 1013904223) >> 8;
    }
    mask.KeepLargest(scores, weights);
    EXPECT_LE(mask.count(), weights);
    EXPECT_GE(mask.count(), weights < 6 ? weights - 1 : weights);
    EXPECT_EQ(mask.Pattern().weight_count(), mask.count());
  }
}

TEST(DepthMaskTest, RemovedWeightsTakeNoPart) {
  const Model model = RandomModel(SmallConfig("1x1", /*gains=*/false, /*bias=*/false));
  DepthMask mask(model.pattern());
  DepthMask::Scores scores = mask.Zeros();
  scores[3][1] = 1;
  mask.KeepLargest(scores, 2);
  const float kept = model.tensors().alphas[3].f32()[1], own = model.tensors().alphas[3].f32()[3];
  mask.Apply(model);
  for (int i = 1; i <= model.config().n_layer; ++i) {
    for (int j = 0; j <= i; ++j) {
      const float expected = i == 3 ? (j == 1 ? kept : j == 3 ? own : 0) : (j == i ? 1 : 0);
      EXPECT_EQ(model.tensors().alphas[i].f32()[j], expected) << i << " " << j;
    }
  }
}

}  // namespace
}  // namespace denseformer
