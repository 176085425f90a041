#include "model/cut_plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/error_testing.h"
#include "base/random.h"

namespace denseformer {
namespace {

std::vector<int> Tensors(const std::string& spec, int depth, int stages) {
  std::vector<int> counts;
  for (const Cut& cut : PlanCuts(DepthPattern::Parse(spec, depth), EvenCuts(depth, stages))) {
    counts.push_back(cut.tensors());
  }
  return counts;
}

TEST(CutPlan, FortyEightBlocksInFourStages) {
  EXPECT_EQ(Tensors("4x5", 48, 4), (std::vector<int>{7, 5, 2}));
  EXPECT_EQ(Tensors("1x1", 48, 4), (std::vector<int>{13, 24, 12}));
  EXPECT_EQ(Tensors("none", 48, 4), (std::vector<int>{0, 0, 0}));
  EXPECT_EQ(Tensors("final", 48, 4), (std::vector<int>{1, 1, 1}));
}

TEST(CutPlan, CountsTheSimpleWays) {
  const std::vector<Cut> plan = PlanCuts(DepthPattern::Parse("4x5", 48), EvenCuts(48, 4));
  EXPECT_EQ(plan[0].all_sources, 13);
  EXPECT_EQ(plan[1].all_sources, 25);
  EXPECT_EQ(plan[2].all_sources, 19);
  EXPECT_EQ(plan[0].all_sums, 7);
  EXPECT_EQ(plan[2].bytes_per_token(768, DType::kBF16), 768 * (4 + 2 * 4));
}

TEST(CutPlan, MixesSourcesAndSums) {
  // X_0 is read by every later module, the window by few: neither all sources nor all sums.
  const std::vector<Cut> plan = PlanCuts(DepthPattern::Parse("last:6", 24), {12});
  EXPECT_EQ(plan[0].all_sources, 6);
  EXPECT_EQ(plan[0].all_sums, 12);
  EXPECT_LE(plan[0].tensors(), 6);
  EXPECT_GT(plan[0].sums.size(), 0u);
}

TEST(CutPlan, TheStreamIsASourceWhereThereIsNoModule) {
  // The module after block 4 reads X_2 and X_4 and stands after the cut at 2, where Y_2 = X_2.
  const DepthPattern pattern = DepthPattern::FromMask("0\n0\n0\n00101\n", 4, "test");
  EXPECT_EQ(PlanCuts(pattern, {2})[0].tensors(), 0);
}

TEST(CutPlan, RefusesMoreStagesThanBlocks) {
  EXPECT_EQ(EvenCuts(7, 3), (std::vector<int>{2, 4}));
  EXPECT_TRUE(EvenCuts(7, 1).empty());
  ExpectError(ErrorCode::kUsage, "got 9 stages, expected 1 to 8", [] { EvenCuts(8, 9); });
}

// A random mask in which a module has its own output and each earlier one with `density`.
DepthPattern RandomPattern(Random& random, int depth) {
  const float density = random.Uniform(), modules = random.Uniform();
  std::string text;
  for (int i = 1; i <= depth; ++i) {
    const bool module = random.Uniform() < modules;
    for (int j = 0; j < i; ++j) text += module && random.Uniform() < density ? '1' : '0';
    text += module ? "1\n" : "0\n";
  }
  return DepthPattern::FromMask(text, depth, "random");
}

// Sends numbers as the plan says, stage by stage; every module must get its average from what its
// stage has. X_j are independent random numbers, which a block may as well make.
void Simulate(const DepthPattern& pattern, const std::vector<Cut>& plan, Random& random) {
  const int depth = pattern.depth();
  std::vector<double> x(static_cast<size_t>(depth) + 1);
  std::map<std::pair<int, int>, double> alpha;
  for (double& value : x) value = random.Normal();
  for (int i = 1; i <= depth; ++i) {
    for (const int j : pattern.sources(i)) alpha[{i, j}] = random.Normal();
  }
  std::map<int, double> sources = {{0, x[0]}};  // that the stage has
  std::map<int, double> sums;                   // partial sums that it got, by module
  std::map<int, std::vector<int>> summed;       // what is in them
  // sum of module i extended by all of `wanted` that is not in it; only with what the stage has.
  const auto extend = [&](int i, const std::vector<int>& wanted) {
    double sum = sums.contains(i) ? sums[i] : 0;
    for (const int j : wanted) {
      const std::vector<int>& in = summed[i];
      if (std::count(in.begin(), in.end(), j) > 0) continue;
      EXPECT_TRUE(sources.contains(j)) << "module " << i << " misses X_" << j;
      sum += alpha[{i, j}] * sources[j];
    }
    for (const int j : summed[i]) {
      EXPECT_EQ(std::count(wanted.begin(), wanted.end(), j), 1) << "X_" << j << " was lost";
    }
    return sum;
  };
  size_t next = 0;
  for (int i = 1; i <= depth; ++i) {
    sources[i] = x[static_cast<size_t>(i)];
    if (pattern.has_module(i)) {
      double expected = 0;
      for (const int j : pattern.sources(i)) expected += alpha[{i, j}] * x[static_cast<size_t>(j)];
      EXPECT_NEAR(extend(i, pattern.sources(i)), expected, 1e-9) << "module " << i;
    }
    if (next == plan.size() || plan[next].block != i) continue;
    const Cut& cut = plan[next++];
    std::map<int, double> new_sources, new_sums;
    std::map<int, std::vector<int>> new_summed;
    for (const int j : cut.sources) {
      ASSERT_TRUE(sources.contains(j)) << "X_" << j << " is not there to be sent";
      new_sources[j] = sources[j];
    }
    if (!pattern.has_module(i)) new_sources[i] = sources[i];
    for (const PartialSum& sum : cut.sums) {
      new_sums[sum.module] = extend(sum.module, sum.sources);
      new_summed[sum.module] = sum.sources;
    }
    sources = new_sources, sums = new_sums, summed = new_summed;
  }
}

TEST(CutPlan, IsSufficientAndNeverLargerThanTheSimpleWays) {
  Random random(1);
  for (int round = 0; round < 400; ++round) {
    const int depth = 2 + static_cast<int>(random.Below(18));
    const DepthPattern pattern = RandomPattern(random, depth);
    std::vector<int> cuts;
    for (int i = 1; i < depth; ++i) {
      if (random.Uniform() < 0.4f) cuts.push_back(i);
    }
    const std::vector<Cut> plan = PlanCuts(pattern, cuts);
    ASSERT_EQ(plan.size(), cuts.size());
    SCOPED_TRACE(pattern.ToString());
    Simulate(pattern, plan, random);
    for (const Cut& cut : plan) {
      EXPECT_LE(cut.tensors(), std::min(cut.all_sources, cut.all_sums)) << "cut " << cut.block;
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace denseformer
