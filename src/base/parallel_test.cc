#include "base/parallel.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/error_testing.h"

namespace denseformer {
namespace {

class ParallelTest : public testing::Test {
 protected:
  ~ParallelTest() override { SetNumThreads(before_); }
  const int before_ = NumThreads();
};

struct Range {
  int64_t begin, end;
  int part;
};

TEST_F(ParallelTest, RangesCoverEverythingOnce) {
  for (int threads : {1, 2, 3, 8}) {
    SetNumThreads(threads);
    for (int64_t grain : {0, 1, 3, 100}) {
      for (int64_t n = 0; n <= 25; ++n) {
        std::vector<std::atomic<int>> visits(n);
        std::vector<Range> ranges;
        std::mutex mutex;
        ParallelFor(n, grain, [&](int64_t begin, int64_t end, int part) {
          for (int64_t i = begin; i < end; ++i) ++visits[i];
          std::lock_guard<std::mutex> lock(mutex);
          ranges.push_back({begin, end, part});
        });
        for (const auto& count : visits) ASSERT_EQ(count, 1) << n << " " << grain << " " << threads;
        std::vector<bool> parts(threads);
        for (const Range& range : ranges) {
          ASSERT_LT(range.part, threads);
          ASSERT_FALSE(parts[range.part]) << "two ranges with one number";
          parts[range.part] = true;
          ASSERT_GE(range.end - range.begin, std::min(n, std::max<int64_t>(1, grain)));
        }
        ASSERT_EQ(ranges.empty(), n == 0);
      }
    }
  }
}

TEST_F(ParallelTest, TakesCallablesByReference) {
  SetNumThreads(2);
  std::atomic<int64_t> sum{0};
  auto add = [&](int64_t begin, int64_t end, int) { sum += end - begin; };
  ParallelFor(10, 1, add);
  const auto& constant = add;
  ParallelFor(10, 1, constant);
  EXPECT_EQ(sum, 20);
}

TEST_F(ParallelTest, RunsOnSeveralThreads) {
  SetNumThreads(2);
  std::thread::id ids[2];
  ParallelFor(2, 1, [&](int64_t begin, int64_t, int) {
    ids[begin] = std::this_thread::get_id();
    // Long enough for the other thread to come, whichever way the tasks are given out.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  });
  EXPECT_NE(ids[0], ids[1]);
}

TEST_F(ParallelTest, WritesAreSeenAfterwards) {
  SetNumThreads(4);
  std::vector<int> values(1000);
  for (int round = 0; round < 100; ++round) {
    ParallelFor(1000, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) values[i] += static_cast<int>(i);
    });
  }
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(values[i], 100 * i);
}

TEST_F(ParallelTest, AnExceptionIsRethrownAfterAllTasksEnded) {
  for (int threads : {1, 4}) {
    SetNumThreads(threads);
    for (int bad = 0; bad < threads; ++bad) {
      std::atomic<int> ended{0};
      ExpectError(ErrorCode::kInvalid, "range of 1", [&] {
        ParallelFor(threads, 1, [&](int64_t begin, int64_t end, int) {
          if (begin == bad) Throw(ErrorCode::kInvalid, "range of {}", end - begin);
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
          ++ended;
        });
      });
      EXPECT_EQ(ended, threads - 1);
    }
    // Several exceptions give one; the pool works on.
    EXPECT_THROW(
        ParallelFor(threads, 1, [](int64_t, int64_t, int) { throw std::runtime_error("x"); }),
        std::runtime_error);
    std::atomic<int> calls{0};
    ParallelFor(threads, 1, [&](int64_t, int64_t, int) { ++calls; });
    EXPECT_EQ(calls, threads);
  }
}

TEST_F(ParallelTest, NestedCallsRunSerially) {
  SetNumThreads(3);
  std::atomic<int> sum{0};
  std::atomic<bool> moved{false};
  ParallelFor(3, 1, [&](int64_t, int64_t, int) {
    const std::thread::id outer = std::this_thread::get_id();
    ParallelFor(7, 1, [&](int64_t begin, int64_t end, int) {
      if (std::this_thread::get_id() != outer) moved = true;
      sum += static_cast<int>(end - begin);
    });
  });
  EXPECT_EQ(sum, 21);
  EXPECT_FALSE(moved);
  ExpectError(ErrorCode::kInvalid, "inner", [] {
    ParallelFor(3, 1, [](int64_t, int64_t, int) {
      ParallelFor(3, 1, [](int64_t, int64_t, int) { Throw(ErrorCode::kInvalid, "inner"); });
    });
  });
}

TEST_F(ParallelTest, MoreTasksThanThreads) {
  SetNumThreads(2);
  std::atomic<int> tasks[50] = {};
  ParallelRun(
      50, [](void* context, int task) { ++static_cast<std::atomic<int>*>(context)[task]; }, tasks);
  for (const auto& count : tasks) EXPECT_EQ(count, 1);
  ParallelRun(
      0, [](void*, int) { FAIL(); }, nullptr);
}

TEST_F(ParallelTest, RefusesSenselessNumbers) {
  ExpectError(ErrorCode::kUsage, "threads: got 0, expected 1 to", [] { SetNumThreads(0); });
  ExpectError(ErrorCode::kUsage, "threads: got 100000", [] { SetNumThreads(100000); });
  EXPECT_EQ(NumThreads(), before_);
}

// Prints the default number of threads with DENSEFORMER_THREADS set, or the error.
[[noreturn]] void PrintDefault(const char* setting) {
  setenv("DENSEFORMER_THREADS", setting, 1);
  try {
    std::fprintf(stderr, "threads %d", NumThreads());
  } catch (const Error& error) {
    std::fprintf(stderr, "%s", error.what());
  }
  std::_Exit(0);
}

TEST(ParallelDeathTest, DefaultComesFromTheEnvironment) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(PrintDefault("3"), testing::ExitedWithCode(0), "threads 3");
  EXPECT_EXIT(PrintDefault("many"), testing::ExitedWithCode(0), "DENSEFORMER_THREADS: got 'many'");
  EXPECT_EXIT(PrintDefault("0"), testing::ExitedWithCode(0), "DENSEFORMER_THREADS: got 0");
}

}  // namespace
}  // namespace denseformer
