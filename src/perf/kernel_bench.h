// Benchmarks of single kernels against the limit that binds them: memory or matrix products.
#ifndef DENSEFORMER_PERF_KERNEL_BENCH_H_
#define DENSEFORMER_PERF_KERNEL_BENCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "denseformer/config.h"
#include "perf/bench_table.h"
#include "tensor/dtype.h"

namespace denseformer {

struct KernelBenchOptions {
  ModelConfig config;
  std::vector<std::string> patterns;  // of `dwa`
  DType compute = DType::kBF16;
  int64_t rows = 2048;   // tokens
  int64_t length = 256;  // of a sequence
  InterleaveOptions interleave;
};

// All averages of a pass (forward, and backward with all gradients) for each pattern, against a
// loop of axpys over fp32 outputs.
BenchTable BenchDwa(const KernelBenchOptions& options);

// Attention of one block, forward and backward, against the block's matrix products.
BenchTable BenchAttention(const KernelBenchOptions& options);

// The products of a block and of the head, forward and both gradients; oneDNN's time beside ours.
BenchTable BenchGemm(const KernelBenchOptions& options);

// AdamW over the model's parameters against a loop of equal memory traffic.
BenchTable BenchOptimizer(const KernelBenchOptions& options);

// Encoding `text` with the tokenizer at `path`, on one thread and on all.
BenchTable BenchTokenizer(const std::string& path, const std::string& text,
                          const InterleaveOptions& interleave);

}  // namespace denseformer

#endif  // DENSEFORMER_PERF_KERNEL_BENCH_H_
