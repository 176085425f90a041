// ParallelRun on OpenMP: the same threads that oneDNN uses, so that neither waits for the other's.
#include <omp.h>

#include <atomic>
#include <exception>
#include <latch>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "base/team.h"

namespace denseformer {
namespace {

// OpenMP ends the process where the system gives no thread. So all of them are asked for once
// before, side by side, and a refusal is an Error.
void RequireThreads(int threads) {
  static std::atomic<int> granted = 1;
  if (threads <= granted) return;
  std::vector<std::thread> started;
  std::latch all(1);
  std::string refusal;
  try {
    while (static_cast<int>(started.size()) < threads - 1)
      started.emplace_back([&] { all.wait(); });
  } catch (const std::system_error& error) {
    refusal = error.code().message();
  }
  all.count_down();
  for (std::thread& thread : started) thread.join();
  if (!refusal.empty()) {
    Throw(
        ErrorCode::kUnsupported,
        "threads: the system gives {} of {} ({}); use --threads {} or raise the limits (ulimit -u, "
        "-v, -s)",
        started.size() + 1, threads, refusal, started.size() + 1);
  }
  granted = threads;
}

}  // namespace

void ParallelRun(int tasks, TaskFunction run, void* context) {
  if (tasks > 1 && team_internal::RunOnTeam(tasks, run, context)) return;
  if (tasks <= 1 || omp_in_parallel()) {
    for (int task = 0; task < tasks; ++task) run(context, task);
    return;
  }
  RequireThreads(NumThreads());
  team_internal::CountRegion();
  std::exception_ptr failure;
#pragma omp parallel for schedule(static, 1) num_threads(NumThreads())
  for (int task = 0; task < tasks; ++task) {
    try {
      run(context, task);
    } catch (...) {
#pragma omp critical(denseformer_parallel_failure)
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace denseformer
