#include "analysis/depth_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "denseformer/error.h"

namespace denseformer {
namespace {

Model MakeModel(const char* dwa, int depth = 4) {
  ModelConfig config = ModelConfig::Preset("test");
  config.n_layer = depth;
  config.dwa = dwa;
  Model model(config, DType::kF32, ModelUse::kInference);
  model.Initialize(1);
  return model;
}

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(DepthWeights, StandAtTheirSources) {
  const Model model = MakeModel("2x1");
  model.tensors().alphas[3].f32()[0] = 0.25f;  // X_1 after block 3
  const DepthMatrix matrix = DepthWeights(model, "run");
  for (int i = 0; i <= 4; ++i) {
    for (int j = 0; j <= 4; ++j) {
      const bool read = i > 0 && j <= i && (i - j) % 2 == 0;
      EXPECT_EQ(std::isnan(matrix.value[i][j]), !read) << i << " " << j;
    }
  }
  EXPECT_EQ(matrix.value[3][1], 0.25);
  EXPECT_EQ(matrix.value[3][3], 1.0);
}

TEST(DepthWeights, APlainTransformerHasNone) {
  EXPECT_NE(MessageOf([] {
              DepthWeights(MakeModel("none"), "runs/a");
            }).find("runs/a: this model has no depth-weighted"),
            std::string::npos);
}

TEST(MeanDepthWeights, MeanAndStandardError) {
  std::vector<DepthMatrix> runs(3, EmptyDepthMatrix(1));
  for (int r = 0; r < 3; ++r) runs[r].value[1][0] = r;  // 0, 1, 2: deviation 1
  const DepthMean mean = MeanDepthWeights(runs, {"a", "b", "c"});
  EXPECT_DOUBLE_EQ(mean.mean.value[1][0], 1);
  EXPECT_DOUBLE_EQ(mean.standard_error.value[1][0], 1 / std::sqrt(3.0));
  EXPECT_TRUE(std::isnan(mean.mean.value[1][1]));
  EXPECT_TRUE(std::isnan(MeanDepthWeights({runs[0]}, {"a"}).standard_error.value[1][0]));
}

TEST(MeanDepthWeights, DifferentModelsAreRefused) {
  const DepthMatrix deep = DepthWeights(MakeModel("1x1", 5), "a"),
                    full = DepthWeights(MakeModel("1x1"), "b"),
                    sparse = DepthWeights(MakeModel("2x1"), "c");
  EXPECT_NE(MessageOf([&] {
              MeanDepthWeights({deep, full}, {"a", "b"});
            }).find("a (5 blocks) and b (4 blocks)"),
            std::string::npos);
  EXPECT_NE(MessageOf([&] {
              MeanDepthWeights({full, sparse}, {"b", "c"});
            }).find("the depth patterns differ"),
            std::string::npos);
}

TEST(SourceShares, OrderedBySizeOfTheContribution) {
  DepthMatrix weights = EmptyDepthMatrix(2);
  weights.value[2] = {0.5, -0.2, 0.3};
  const auto plain = SourceShares(weights, {});
  ASSERT_EQ(plain[2].size(), 3u);
  EXPECT_EQ(plain[2][0].source, 0);
  EXPECT_DOUBLE_EQ(plain[2][0].share, 0.5);
  const auto scaled = SourceShares(weights, {1, 10, 1});
  EXPECT_EQ(scaled[2][0].source, 1);
  EXPECT_DOUBLE_EQ(scaled[2][0].share, 2 / 2.8);
  EXPECT_TRUE(plain[1].empty());
}

}  // namespace
}  // namespace denseformer
