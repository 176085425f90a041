#include "kernels/dwa/dwa_schedule.h"

#include <gtest/gtest.h>

#include <set>

namespace denseformer {
namespace {

// Every partial sum is written before it is read, by a pass that reads all its terms, and no slot
// holds two at a time.
void ExpectSound(const DepthPattern& pattern, const DepthSchedule& schedule, bool forward,
                 const LookAhead& limits) {
  std::set<int> alive;
  for (int n = 0; n <= pattern.depth(); ++n) {
    const int depth = forward ? n : pattern.depth() - n;
    const DepthStep& step = schedule.steps[depth];
    if (step.slot >= 0) {
      EXPECT_EQ(alive.erase(step.slot), 1u) << depth;
      EXPECT_GE(step.covered, limits.worth);
      EXPECT_TRUE(step.followers.empty());
    } else {
      EXPECT_EQ(step.covered, 0);
    }
    EXPECT_LT(static_cast<int>(step.followers.size()), limits.group);
    for (const DepthStep::Follower& follower : step.followers) {
      EXPECT_TRUE(alive.insert(follower.slot).second) << depth;
      EXPECT_EQ(schedule.steps[follower.depth].slot, follower.slot);
      EXPECT_LT(follower.slot, schedule.slots);
    }
  }
  EXPECT_TRUE(alive.empty());
  EXPECT_LE(schedule.slots, limits.slots);
}

TEST(DwaScheduleTest, IsSoundForEveryPattern) {
  for (int depth : {1, 7, 12, 13, 48, 90}) {
    for (const char* spec : {"1x1", "2x1", "4x1", "12x1", "1x4", "last:3", "last:30", "final"}) {
      SCOPED_TRACE(std::string(spec) + " at depth " + std::to_string(depth));
      if (depth < 4 && std::string(spec) == "1x4") continue;
      const DepthPattern pattern = DepthPattern::Parse(spec, depth);
      ExpectSound(pattern, ScheduleForward(pattern, kForwardLookAhead), true, kForwardLookAhead);
      ExpectSound(pattern, ScheduleBackward(pattern, kBackwardLookAhead), false,
                  kBackwardLookAhead);
    }
  }
}

TEST(DwaScheduleTest, ForwardGroupsTheNextModules) {
  const DepthPattern pattern = DepthPattern::Parse("1x1", 12);
  const DepthSchedule schedule = ScheduleForward(pattern, {.group = 3, .slots = 7, .worth = 4});
  // The first leader is the first module with enough history.
  EXPECT_TRUE(schedule.steps[3].followers.empty());
  ASSERT_EQ(schedule.steps[4].followers.size(), 2u);
  EXPECT_EQ(schedule.steps[4].followers[1].depth, 6);
  EXPECT_EQ(schedule.steps[6].covered, 4);  // X_0..X_3
  EXPECT_EQ(schedule.steps[7].followers.size(), 2u);
  EXPECT_EQ(schedule.slots, 2);
}

TEST(DwaScheduleTest, BackwardCountsTheDeepestReaders) {
  const DepthPattern pattern = DepthPattern::Parse("1x1", 12);
  const DepthSchedule schedule = ScheduleBackward(pattern, {.group = 3, .slots = 7, .worth = 4});
  ASSERT_EQ(schedule.steps[9].followers.size(), 2u);
  EXPECT_EQ(schedule.steps[9].followers[1].depth, 7);
  EXPECT_EQ(schedule.steps[7].covered, 4);  // dY_12..dY_9
}

TEST(DwaScheduleTest, FollowersShareTheSourcesOfTheirLeader) {
  const DepthPattern pattern = DepthPattern::Parse("4x1", 48);
  const DepthSchedule schedule = ScheduleForward(pattern, {.group = 3, .slots = 7, .worth = 4});
  size_t followers = 0;
  for (int i = 0; i <= 48; ++i) {
    followers += schedule.steps[i].followers.size();
    for (const DepthStep::Follower& follower : schedule.steps[i].followers) {
      EXPECT_EQ(follower.depth % 4, i % 4);
    }
  }
  EXPECT_GT(followers, 15u);
}

TEST(DwaScheduleTest, LooksNotAheadWhereItDoesNotPay) {
  for (const char* spec : {"4x5", "last:3", "final"}) {
    EXPECT_EQ(ScheduleForward(DepthPattern::Parse(spec, 48), kForwardLookAhead).slots, 0) << spec;
    EXPECT_EQ(ScheduleBackward(DepthPattern::Parse(spec, 48), kBackwardLookAhead).slots, 0) << spec;
  }
  EXPECT_EQ(ScheduleForward(DepthPattern(48), kForwardLookAhead).slots, 0);
}

}  // namespace
}  // namespace denseformer
