// ParallelRun on the threads of PyTorch: its thread count, and no second pool beside its own.
#include <ATen/Parallel.h>

#include "base/parallel.h"

namespace denseformer {

int NumThreads() { return at::get_num_threads(); }

void ParallelRun(int tasks, TaskFunction run, void* context) {
  at::parallel_for(0, tasks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) run(context, static_cast<int>(task));
  });
}

}  // namespace denseformer
