// What the benchmarks of single kernels share: shapes, tensors with numbers in them, linear layers.
#ifndef DENSEFORMER_PERF_KERNEL_BENCH_H_
#define DENSEFORMER_PERF_KERNEL_BENCH_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "denseformer/config.h"
#include "kernels/gemm/gemm.h"
#include "perf/benchmark.h"
#include "tensor/storage.h"
#include "tensor/tensor.h"

namespace denseformer {

struct KernelBenchOptions {
  ModelConfig config;
  std::vector<std::string> patterns;  // of `dwa`
  DType compute = DType::kBF16;
  int64_t rows = 2048;   // tokens
  int64_t length = 256;  // of a sequence
  InterleaveOptions interleave;
};

KernelBenchOptions ParseKernelOptions(const BenchOptions& options);

// The settings that the tables of GEMMs and attention print.
std::vector<std::pair<std::string, std::string>> KernelSettings(const KernelBenchOptions& options);

// A tensor of random numbers of the size of ordinary activations, which owns its memory.
struct FilledTensor {
  FilledTensor(DType dtype, Shape shape, uint64_t seed = 1);
  Storage storage;
  Tensor tensor;
};

// One linear layer with all that its three GEMMs read and write.
struct LinearLayer {
  LinearLayer(DType compute, int64_t out, int64_t in, int64_t rows);
  void Forward() { LinearForward(x.tensor, weight, Tensor(), y.tensor); }
  void Backward() {
    LinearBackwardInput(y.tensor, weight, x.tensor);
    LinearBackwardWeight(y.tensor, x.tensor, gradient.tensor, /*add=*/false);
  }

  FilledTensor master, x, y, gradient;
  PackedWeight weight;
};

// {out, in} of the four linear layers of a block.
std::vector<std::pair<int64_t, int64_t>> BlockShapes(const ModelConfig& config);

}  // namespace denseformer

#endif  // DENSEFORMER_PERF_KERNEL_BENCH_H_
