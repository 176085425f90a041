// What both implementations of ParallelRun share: the number of threads.
#include "base/parallel.h"

#include <sched.h>

#include <atomic>
#include <cstdlib>

#include "base/error.h"
#include "base/text.h"

namespace denseformer {
namespace {

constexpr int kMostThreads = 1024;

int DefaultThreads() {
  if (const char* value = std::getenv("DENSEFORMER_THREADS")) {
    return static_cast<int>(ParseInt("DENSEFORMER_THREADS", value, 1, kMostThreads));
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

std::atomic<int>& Threads() {
  static std::atomic<int> threads = DefaultThreads();
  return threads;
}

}  // namespace

int NumThreads() { return Threads().load(std::memory_order_relaxed); }

void SetNumThreads(int threads) {
  if (threads < 1 || threads > kMostThreads) {
    Throw(ErrorCode::kUsage, "threads: got {}, expected 1 to {}", threads, kMostThreads);
  }
  Threads().store(threads, std::memory_order_relaxed);
}

}  // namespace denseformer
