// ParallelRun on OpenMP: the same threads that oneDNN uses, so that neither waits for the other's.
#include <omp.h>

#include <exception>

#include "base/parallel.h"

namespace denseformer {

void ParallelRun(int tasks, TaskFunction run, void* context) {
  if (tasks <= 1 || omp_in_parallel()) {
    for (int task = 0; task < tasks; ++task) run(context, task);
    return;
  }
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
