// Threads: one pool for the whole process, static partitions.
//
// ParallelFor cuts [0, n) into one contiguous range a thread. Which thread works on an index
// depends on the number of threads, so a sum over indices must be taken over partitions that do
// not: see kFixedPartition in the kernels that reduce.
#ifndef DENSEFORMER_BASE_PARALLEL_H_
#define DENSEFORMER_BASE_PARALLEL_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <type_traits>

namespace denseformer {

// Number of threads of ParallelFor. Default: the cores this process may use, or
// DENSEFORMER_THREADS.
int NumThreads();

// Sets the number of threads, at least 1. Not to be called inside ParallelFor.
void SetNumThreads(int threads);

// Calls run(context, task) once for every task in [0, tasks), on up to NumThreads() threads. An
// exception in a task is rethrown here after all have ended. A call from inside a task runs
// serially.
using TaskFunction = void (*)(void* context, int task);
void ParallelRun(int tasks, TaskFunction run, void* context);

// Calls fn(begin, end, part) on contiguous ranges that cover [0, n); `part` < NumThreads() numbers
// the ranges, so it can index scratch memory of the thread. Ranges are at least `grain` long.
template <class F>
void ParallelFor(int64_t n, int64_t grain, F&& fn) {
  if (n <= 0) return;
  const int64_t most = std::max<int64_t>(1, n / std::max<int64_t>(1, grain));
  const int parts = static_cast<int>(std::min<int64_t>(NumThreads(), most));
  if (parts == 1) {
    fn(int64_t{0}, n, 0);
    return;
  }
  struct Context {
    std::remove_reference_t<F>* fn;
    int64_t n;
    int parts;
  } context{&fn, n, parts};
  ParallelRun(
      parts,
      [](void* opaque, int part) {
        const Context& c = *static_cast<Context*>(opaque);
        (*c.fn)(c.n * part / c.parts, c.n * (part + 1) / c.parts, part);
      },
      &context);
}

// Calls fn(index, part) for every index in [0, n), each thread taking the next one that is free:
// for work of unequal size. Only for results that do not depend on which thread does what.
template <class F>
void ParallelForEach(int64_t n, F&& fn) {
  std::atomic<int64_t> next = 0;
  ParallelFor(std::min<int64_t>(n, NumThreads()), 1, [&](int64_t, int64_t, int part) {
    for (int64_t index; (index = next.fetch_add(1, std::memory_order_relaxed)) < n;) {
      fn(index, part);
    }
  });
}

}  // namespace denseformer

#endif  // DENSEFORMER_BASE_PARALLEL_H_
