#include "dist/watchdog.h"

#include <gtest/gtest.h>

namespace denseformer {
namespace {

TEST(Watchdog, SaysNothingWhileAllGoesOn) {
  EXPECT_EQ(FindHang({{-1, 0, 0}, {0, 9, 0.5}, {1, 3, 0.5}}, 10), "");
  EXPECT_EQ(FindHang({}, 10), "");
}

TEST(Watchdog, FollowsTheChainToTheRankThatDoesNotWait) {
  EXPECT_EQ(FindHang({{1, 12, 0}, {2, 12, 0}, {-1, 0, 0}}, 10),
            "rank 2 hangs: rank 0 has waited for 12 s");
}

TEST(Watchdog, NamesASilentRankFirst) {
  EXPECT_EQ(FindHang({{1, 12, 0}, {2, 12, 0}, {1, 0, 11}}, 10),
            "rank 2 hangs: it has not reported for 11 s");
}

TEST(Watchdog, ReportsADeadlock) {
  EXPECT_EQ(FindHang({{1, 12, 0}, {0, 11, 0}}, 10),
            "ranks wait for each other: rank 0 for rank 1 for 12 s");
}

}  // namespace
}  // namespace denseformer
