#include "train/pass_costs.h"

#include <gtest/gtest.h>

#include "base/error_testing.h"

namespace denseformer {
namespace {

PassCosts Even() {
  PassCosts costs;
  costs.block_forward = 1;
  costs.block_backward = 2;
  return costs;
}

TEST(PassCostsTest, EvenBlocksGiveEvenStages) {
  EXPECT_EQ(BalancedCuts(Even(), DepthPattern(12), 4, false), (std::vector<int>{3, 6, 9}));
  EXPECT_TRUE(BalancedCuts(Even(), DepthPattern(12), 1, false).empty());
  ExpectError(ErrorCode::kUsage, "got 5 stages, expected 1 to 4",
              [] { BalancedCuts(Even(), DepthPattern(4), 5, false); });
}

TEST(PassCostsTest, TheHeadTakesThePlaceOfBlocks) {
  PassCosts costs = Even();
  costs.head = 6;  // as much as two blocks
  EXPECT_EQ(BalancedCuts(costs, DepthPattern(10), 2, false), (std::vector<int>{6}));
  costs.input_backward = 6;
  EXPECT_EQ(BalancedCuts(costs, DepthPattern(10), 2, false), (std::vector<int>{5}));
}

TEST(PassCostsTest, NoOtherCutsAreBetter) {
  PassCosts costs = Even();
  costs.head = 5;
  costs.source_forward = 0.1;
  costs.source_backward = 0.2;
  const DepthPattern pattern = DepthPattern::Parse("1x1", 9);
  const auto slowest = [&](const std::vector<int>& cuts) {
    double most = 0;
    int before = 0;
    for (size_t s = 0; s <= cuts.size(); ++s) {
      const int last = s < cuts.size() ? cuts[s] : 9;
      double cost = s == cuts.size() ? costs.head : 0;
      for (int i = before + 1; i <= last; ++i) {
        cost += 3 + 0.3 * static_cast<double>(pattern.sources(i).size());
      }
      most = std::max(most, cost);
      before = last;
    }
    return most;
  };
  const double best = slowest(BalancedCuts(costs, pattern, 3, false));
  for (int a = 1; a < 8; ++a) {
    for (int b = a + 1; b < 9; ++b) EXPECT_LE(best, slowest({a, b}) + 1e-12) << a << " " << b;
  }
}

TEST(PassCostsTest, EveryPairOfAnAverageIsOnOneStage) {
  PassCosts costs;
  costs.source_forward = 1;
  for (const char* dwa : {"1x1", "4x5", "last:3"}) {
    const DepthPattern pattern = DepthPattern::Parse(dwa, 24);
    double sum = 0;
    for (const Stage& stage : PlanStages(pattern, {6, 12, 18})) {
      sum += CostOfStage(costs, pattern, stage, false).forward;
    }
    EXPECT_EQ(sum, static_cast<double>(pattern.weight_count())) << dwa;
  }
}

TEST(PassCostsTest, MeasuresAndStores) {
  ModelConfig config = ModelConfig::Preset("test");
  const PassCosts costs = MeasurePassCosts(config, DType::kF32, 1, config.seq_len);
  EXPECT_GT(costs.block_forward, 0);
  EXPECT_GT(costs.block_backward, 0);
  EXPECT_GT(costs.head, 0);
  EXPECT_GT(costs.update, 0);
  const nlohmann::json json = nlohmann::json::parse(ToJson(costs).dump());
  EXPECT_EQ(PassCostsFromJson(json, "file").head, costs.head);
  nlohmann::json wrong = json;
  wrong.erase("head");
  ExpectError(ErrorCode::kInvalid, "file: no 'head'", [&] { PassCostsFromJson(wrong, "file"); });
  wrong["head"] = -1;
  ExpectError(ErrorCode::kInvalid, "'head' is -1, expected seconds",
              [&] { PassCostsFromJson(wrong, "file"); });
  wrong = json;
  wrong["tail"] = 1;
  ExpectError(ErrorCode::kInvalid, "unknown 'tail'", [&] { PassCostsFromJson(wrong, "file"); });
}

}  // namespace
}  // namespace denseformer
