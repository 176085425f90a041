#include "perf/interleave.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/random.h"

namespace denseformer {
namespace {

TEST(Interleave, EveryRoundRunsAllInAnOrderOfItsOwn) {
  std::string order;
  std::vector<Variant> variants;
  for (const char name : {'a', 'b', 'c', 'd'})
    variants.push_back({std::string(1, name), [&order, name] { order += name; }});
  InterleaveOptions options;
  options.rounds = 20;
  const std::vector<Timing> timings = Interleave(variants, options);
  ASSERT_EQ(order.size(), 4u * 21);
  EXPECT_EQ(order.substr(0, 4), "abcd");  // to warm up
  std::set<std::string> neighbors;
  for (size_t at = 4; at < order.size(); at += 4) {
    std::string round = order.substr(at, 4);
    for (size_t i = 0; i + 1 < round.size(); ++i) neighbors.insert(round.substr(i, 2));
    std::sort(round.begin(), round.end());
    EXPECT_EQ(round, "abcd") << at;
  }
  EXPECT_EQ(neighbors.size(), 12u);  // each has followed each other
  for (const Timing& timing : timings) EXPECT_EQ(timing.seconds.size(), 20u);
}

TEST(Timing, MedianMinimumAndSpread) {
  const Timing timing{"t", {5, 1, 2, 4, 3}};
  EXPECT_DOUBLE_EQ(timing.median(), 3);
  EXPECT_DOUBLE_EQ(timing.minimum(), 1);
  EXPECT_DOUBLE_EQ(timing.spread(), 1.0 / 3);  // (4 - 2) / 2 / 3
  EXPECT_DOUBLE_EQ((Timing{"t", {1, 2}}).median(), 1.5);
}

TEST(Timing, RatioOfMediansKnowsItsError) {
  const Timing b{"b", {1, 2, 3, 4, 5}};
  Timing twice{"a", {2, 4, 6, 8, 10}};  // what slows a round slows both
  EXPECT_DOUBLE_EQ(RatioOfMedians(twice, b).value, 2);
  EXPECT_NEAR(RatioOfMedians(twice, b).error, 0, 1e-12);
  EXPECT_EQ(RatioOfMedians({"a", {3}}, {"b", {2}}).value, 1.5);
  EXPECT_EQ(RatioOfMedians({"a", {3}}, {"b", {2}}).error, 0);
  // Medians of n normal values of deviation s vary by 1.25 s / sqrt(n): here 1.25 * 0.01 / 10.
  Random random(/*key=*/3);
  Timing noisy{"a", {}}, steady{"b", std::vector<double>(100, 1.0)};
  for (int i = 0; i < 100; ++i) noisy.seconds.push_back(1 + 0.01 * random.Normal());
  const MedianRatio ratio = RatioOfMedians(noisy, steady);
  EXPECT_NEAR(ratio.value, 1, 0.005);
  EXPECT_GT(ratio.error, 0.0006);
  EXPECT_LT(ratio.error, 0.0025);
}

// The values of a bootstrap that draws as many rounds as there are.
TEST(Timing, TheErrorOfUpToAThousandRoundsDrawsAllOfThem) {
  const std::pair<int, double> cases[] = {
      {7, 0.19133117885838249}, {101, 0.043644498412724997}, {1000, 0.015124759036147597}};
  for (const auto& [rounds, error] : cases) {
    Timing a{"a", {}}, b{"b", {}};
    for (int i = 0; i < rounds; ++i) {
      a.seconds.push_back(1 + 0.01 * (i * 37 % 101));
      b.seconds.push_back(1 + 0.01 * (i * 53 % 97));
    }
    EXPECT_DOUBLE_EQ(RatioOfMedians(a, b).error, error) << rounds;
  }
}

// Medians of n values with the density f vary by 1 / (2 f(median) sqrt(n)).
TEST(Timing, TheErrorOfManyRoundsIsThatOfAllOfThem) {
  constexpr int kRounds = 200000;
  const double root = std::sqrt(kRounds);
  Random random(/*key=*/5);
  Timing normal{"a", {}}, other{"b", {}}, exponential{"c", {}};
  for (int i = 0; i < kRounds; ++i) {
    normal.seconds.push_back(1 + 0.01 * random.Normal());
    other.seconds.push_back(1 + 0.01 * random.Normal());
    exponential.seconds.push_back(-std::log(1 - random.UniformDouble()));
  }
  const Timing steady{"d", std::vector<double>(kRounds, 1.0)};
  const double of_normal = 0.01 * std::sqrt(std::acos(-1.0) / 2) / root;
  const double of_exponential = 1 / root;  // f(median) = 1/2
  EXPECT_NEAR(RatioOfMedians(normal, steady).error, of_normal, 0.12 * of_normal);
  EXPECT_NEAR(RatioOfMedians(normal, other).error, std::sqrt(2) * of_normal, 0.17 * of_normal);
  EXPECT_NEAR(RatioOfMedians(exponential, steady).error, of_exponential, 0.12 * of_exponential);
  EXPECT_EQ(RatioOfMedians(normal, other).error, RatioOfMedians(normal, other).error);
}

}  // namespace
}  // namespace denseformer
