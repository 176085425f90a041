// ParallelRun on std::thread: for the thread sanitizer, which does not see OpenMP's
// synchronization.
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/parallel.h"
#include "base/team.h"

namespace denseformer {
namespace {
thread_local bool inside_task = false;
}  // namespace

void ParallelRun(int tasks, TaskFunction run, void* context) {
  if (tasks > 1 && team_internal::RunOnTeam(tasks, run, context)) return;
  if (tasks <= 1 || inside_task) {
    for (int task = 0; task < tasks; ++task) run(context, task);
    return;
  }
  team_internal::CountRegion();
  std::exception_ptr failure;
  std::mutex mutex;
  std::atomic<int> next{0};
  auto work = [&] {
    inside_task = true;
    for (int task = next++; task < tasks; task = next++) {
      try {
        run(context, task);
      } catch (...) {
        std::lock_guard<std::mutex> lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    }
    inside_task = false;
  };
  std::vector<std::thread> threads;
  try {
    for (int i = 1; i < std::min(tasks, NumThreads()); ++i) threads.emplace_back(work);
  } catch (const std::system_error&) {
    // The system gives no more threads: those that exist do the work.
  }
  work();
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace denseformer
