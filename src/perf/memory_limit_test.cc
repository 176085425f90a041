#include "perf/memory_limit.h"

#include <gtest/gtest.h>

#include <numeric>

namespace denseformer {
namespace {

TEST(MemoryLimitTest, ReadsEveryWordOnce) {
  for (const size_t words : {0, 1, 7, 64, 100003}) {
    std::vector<uint64_t> values(words);
    std::iota(values.begin(), values.end(), uint64_t{1});
    EXPECT_EQ(ReadBytes(std::as_bytes(std::span(values))), words * (words + 1) / 2);
  }
}

TEST(MemoryLimitTest, TouchFourWritesAllButTheSecond) {
  std::vector<float> a(1001, 1), b(1001, 5), c(1001, 2), d(1001, 3);
  TouchFour(a, b, c, d);
  EXPECT_EQ(a, std::vector<float>(1001, 2));
  EXPECT_EQ(b, std::vector<float>(1001, 5));
  EXPECT_EQ(c, std::vector<float>(1001, 3));
  EXPECT_EQ(d, std::vector<float>(1001, 5));
}

TEST(MemoryLimitTest, TrafficCountsUpdatesTwice) {
  const MemoryTraffic traffic{.read = {100, 20}, .update = {3000}, .write = {7}};
  EXPECT_EQ(traffic.bytes(), 100 + 20 + 2 * 3000 + 7);
  TrafficLoop loop(traffic);
  loop.Run();
}

}  // namespace
}  // namespace denseformer
