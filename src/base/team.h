// A team: the threads of ParallelFor kept ready over many short passes.
//
// Starting a parallel region costs microseconds, and a decode step has hundreds of short passes. In
// a team all of them are one region: the calling thread runs the work, the others wait for its
// ParallelFor calls, spinning, and each takes the same parts as it would outside. While a thread
// waits it fetches what it will read next.
#ifndef DENSEFORMER_BASE_TEAM_H_
#define DENSEFORMER_BASE_TEAM_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/function_ref.h"
#include "base/parallel.h"

namespace denseformer {

// Calls work() on one thread; its ParallelRun and ParallelFor calls run on NumThreads() threads
// that wait for them. What it throws is rethrown. Inside a task or another team it only calls
// work(). Libraries with threads of their own must not be called inside.
void RunAsTeam(FunctionRef<void()> work);

// What the calling thread will read next: while it waits in a team, it fetches these bytes into its
// cache, from the first on, until the next call of this function. They must stay readable.
void SetUpcomingRead(const void* begin, size_t bytes);

// How often threads were started or met since the process began, for tests and benchmarks.
struct ParallelCounts {
  uint64_t regions = 0;     // parallel regions, each team one of them
  uint64_t team_calls = 0;  // passes that the threads of a team shared
};
ParallelCounts CountParallel();

namespace team_internal {
// For ParallelRun: false where the calling thread does not lead a team.
bool RunOnTeam(int tasks, TaskFunction run, void* context);
void CountRegion();
}  // namespace team_internal

// A part of shared work: number `part` of `parts`, with indices [begin, end) of its own.
struct SharedPart {
  int part, parts;
  int64_t begin, end;
};

// Calls fn(begin, end, part) on ranges that cover [0, n): each thread takes ranges of its own part
// in order, then indices that other threads have left, one by one, but not their last one, which
// they are about to take. Only for results that do not depend on which thread does what.
// `done(part)` ends each part.
//
// Taking an index waits for all that the thread has stored before, so it takes up to `most` of its
// own at once, as long as there is much left. What it has taken no other thread can do: 1 where
// some indices may be much more work than others.
template <class F, class Done>
void ParallelForShared(int64_t n, int64_t grain, int64_t most, F&& fn, Done&& done) {
  constexpr int64_t kMostParts = 64;
  struct alignas(64) Range {
    int64_t next, end;
  };
  if (n <= 0) return;
  std::array<Range, kMostParts> ranges;
  const int64_t parts = std::min<int64_t>(
      {NumThreads(), kMostParts, std::max<int64_t>(1, n / std::max<int64_t>(1, grain))});
  for (int64_t p = 0; p < parts; ++p) ranges[p] = {n * p / parts, n * (p + 1) / parts};
  ParallelFor(parts, 1, [&](int64_t first_part, int64_t last_part, int) {
    for (int64_t p = first_part; p < last_part; ++p) {
      const SharedPart part{static_cast<int>(p), static_cast<int>(parts), n * p / parts,
                            n * (p + 1) / parts};
      for (int64_t turn = 0; turn < parts; ++turn) {
        Range& range = ranges[(p + turn) % parts];
        const int64_t kept = turn == 0 ? 0 : 1;
        const std::atomic_ref<int64_t> next(range.next);
        for (int64_t at; (at = next.load(std::memory_order_relaxed)) + kept < range.end;) {
          const int64_t count = turn == 0 ? std::clamp<int64_t>((range.end - at) / 2, 1, most) : 1;
          const int64_t first = next.fetch_add(count, std::memory_order_relaxed);
          if (first < range.end) fn(first, std::min(first + count, range.end), part);
        }
      }
      done(part);
    }
  });
}

}  // namespace denseformer

#endif  // DENSEFORMER_BASE_TEAM_H_
