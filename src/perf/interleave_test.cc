#include "perf/interleave.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

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
  std::set<std::string> neighbours;
  for (size_t at = 4; at < order.size(); at += 4) {
    std::string round = order.substr(at, 4);
    for (size_t i = 0; i + 1 < round.size(); ++i) neighbours.insert(round.substr(i, 2));
    std::sort(round.begin(), round.end());
    EXPECT_EQ(round, "abcd") << at;
  }
  EXPECT_EQ(neighbours.size(), 12u);  // each has followed each other
  for (const Timing& timing : timings) EXPECT_EQ(timing.seconds.size(), 20u);
}

TEST(Timing, MedianMinimumAndSpread) {
  const Timing timing{"t", {5, 1, 2, 4, 3}};
  EXPECT_DOUBLE_EQ(timing.median(), 3);
  EXPECT_DOUBLE_EQ(timing.minimum(), 1);
  EXPECT_DOUBLE_EQ(timing.spread(), 1.0 / 3);  // (4 - 2) / 2 / 3
  EXPECT_DOUBLE_EQ((Timing{"t", {1, 2}}).median(), 1.5);
}

}  // namespace
}  // namespace denseformer
