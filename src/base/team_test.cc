#include "base/team.h"

#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/error_testing.h"

namespace denseformer {
namespace {

class TeamTest : public testing::Test {
 protected:
  ~TeamTest() override { SetNumThreads(before_); }
  const int before_ = NumThreads();
};

TEST_F(TeamTest, ManyPassesAreOneRegion) {
  for (int threads : {1, 2, 3, 8}) {
    SetNumThreads(threads);
    std::vector<int64_t> values(1000);
    const ParallelCounts before = CountParallel();
    RunAsTeam([&] {
      for (int round = 0; round < 50; ++round) {
        ParallelFor(1000, 1, [&](int64_t begin, int64_t end, int part) {
          EXPECT_LT(part, threads);
          for (int64_t i = begin; i < end; ++i) values[i] += i;
        });
        for (int64_t i = 0; i < 1000; i += 99) ASSERT_EQ(values[i], (round + 1) * i);
      }
    });
    for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(values[i], 50 * i);
    EXPECT_EQ(CountParallel().regions - before.regions, threads == 1 ? 0u : 1u);
    EXPECT_LE(CountParallel().team_calls - before.team_calls, threads == 1 ? 0u : 50u);
  }
}

TEST_F(TeamTest, SharesItsPassesAmongThreads) {
  SetNumThreads(2);
  std::set<std::thread::id> ids;
  std::mutex mutex;
  RunAsTeam([&] {
    // The other thread may come late, but it does come.
    for (int round = 0; round < 1000 && ids.size() < 2; ++round) {
      ParallelFor(2, 1, [&](int64_t, int64_t, int) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        std::lock_guard<std::mutex> lock(mutex);
        ids.insert(std::this_thread::get_id());
      });
    }
  });
  EXPECT_EQ(ids.size(), 2u);
}

// Both sides sleep: the leader while a task takes long, the others while it works alone.
TEST_F(TeamTest, WakesThreadsThatWaitedLong) {
  SetNumThreads(3);
  std::atomic<int> ran{0};
  RunAsTeam([&] {
    for (int round = 0; round < 5; ++round) {
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
      ParallelFor(3, 1, [&](int64_t begin, int64_t end, int) {
        if (begin > 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
        ran += static_cast<int>(end - begin);
      });
    }
  });
  EXPECT_EQ(ran, 15);
}

TEST_F(TeamTest, TasksAndTeamsInsideRunSerially) {
  SetNumThreads(4);
  std::atomic<int> ran{0};
  RunAsTeam([&] {
    ParallelFor(4, 1, [&](int64_t, int64_t, int) {
      ParallelFor(4, 1, [&](int64_t, int64_t, int) { ++ran; });
    });
    RunAsTeam([&] { ParallelFor(4, 1, [&](int64_t, int64_t, int) { ++ran; }); });
  });
  EXPECT_EQ(ran, 20);
}

TEST_F(TeamTest, ErrorsPassAndLeaveTheThreadsUsable) {
  SetNumThreads(4);
  for (int bad = 0; bad < 4; ++bad) {
    std::atomic<int> ended{0};
    ExpectError(ErrorCode::kInvalid, "part of 1", [&] {
      RunAsTeam([&] {
        ParallelFor(4, 1, [&](int64_t begin, int64_t end, int) {
          if (begin == bad) Throw(ErrorCode::kInvalid, "part of {}", end - begin);
          ++ended;
        });
      });
    });
    EXPECT_EQ(ended, 3);
  }
  ExpectError(ErrorCode::kInvalid, "the work",
              [] { RunAsTeam([] { Throw(ErrorCode::kInvalid, "the work"); }); });
  std::atomic<int> ran{0};
  RunAsTeam([&] { ParallelFor(4, 1, [&](int64_t, int64_t, int) { ++ran; }); });
  EXPECT_EQ(ran, 4);
}

TEST_F(TeamTest, SharedRangesCoverEverythingOnce) {
  for (int threads : {1, 2, 5}) {
    SetNumThreads(threads);
    for (const auto& sizes : {std::pair(1, 1), {1, 100}, {3, 1}, {3, 4}}) {
      const int64_t grain = sizes.first, most = sizes.second;
      for (int64_t n : {0, 1, 2, 7, 100}) {
        std::vector<std::atomic<int>> visits(n);
        std::atomic<int> ended{0};
        std::atomic<int64_t> own{0};
        const auto run = [&] {
          ParallelForShared(
              n, grain, most,
              [&](int64_t begin, int64_t end, const SharedPart& part) {
                EXPECT_LT(begin, end);
                EXPECT_LE(end - begin, most);
                for (int64_t i = begin; i < end; ++i) {
                  if (part.part == 0 && i % 16 == 0) std::this_thread::yield();  // others take some
                  ++visits[i];
                }
              },
              [&](const SharedPart& part) {
                EXPECT_LT(part.part, part.parts);
                own += part.end - part.begin;
                ++ended;
              });
        };
        run();
        EXPECT_EQ(ended > 0, n > 0);
        EXPECT_EQ(own, n);
        RunAsTeam(run);
        for (const auto& count : visits) ASSERT_EQ(count, 2) << n << " " << threads;
      }
    }
  }
}

// The thread of the first of twenty indices has taken it alone, and the last of its ten is left to
// it; all others are done meanwhile. (It may be the other thread, where this one comes late.)
TEST_F(TeamTest, OthersDoWhatASlowThreadHasNotTaken) {
  SetNumThreads(2);
  std::atomic<int> ended{0};
  ParallelForShared(
      20, /*grain=*/1, /*most=*/1,
      [&](int64_t i, int64_t, const SharedPart&) {
        const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        while (i == 0 && ended < 18 && std::chrono::steady_clock::now() < latest) {
          std::this_thread::yield();
        }
        if (i == 0) {
          EXPECT_GE(ended, 18);
        }
        ++ended;
      },
      [](const SharedPart&) {});
  EXPECT_EQ(ended, 20);
}

}  // namespace
}  // namespace denseformer
