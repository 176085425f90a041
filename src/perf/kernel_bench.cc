#include "perf/kernel_bench.h"

#include "base/parallel.h"
#include "base/random.h"
#include "perf/model_bench.h"

namespace denseformer {

KernelBenchOptions ParseKernelOptions(const BenchOptions& options) {
  const ModelBenchOptions model = ParseModelOptions(options);
  KernelBenchOptions bench;
  bench.config = model.config;
  bench.patterns = model.patterns;
  bench.compute = model.compute;
  bench.length = model.length;
  bench.rows = model.shapes.front().batch * model.length;
  bench.interleave = model.interleave;
  return bench;
}

std::vector<std::pair<std::string, std::string>> KernelSettings(const KernelBenchOptions& options) {
  return {{"width", std::to_string(options.config.n_embd)},
          {"tokens", std::to_string(options.rows)},
          {"precision", DTypeName(options.compute)},
          {"threads", std::to_string(NumThreads())},
          {"gemm", GemmDescription()}};
}

FilledTensor::FilledTensor(DType dtype, Shape shape, uint64_t seed)
    : storage(static_cast<size_t>(shape.count()) * SizeOf(dtype)),
      tensor(storage.data(), dtype, shape) {
  ParallelFor(shape.count(), 1 << 16, [&](int64_t begin, int64_t end, int) {
    Random random(seed, static_cast<uint64_t>(begin));
    for (int64_t i = begin; i < end; ++i) {
      const float value = random.Uniform() - 0.5f;
      if (dtype == DType::kF32) {
        tensor.f32()[i] = value;
      } else {
        tensor.As<bf16>()[i] = bf16(value);
      }
    }
  });
}

LinearLayer::LinearLayer(DType compute, int64_t out, int64_t in, int64_t rows)
    : master(DType::kF32, {out, in}),
      x(compute, {rows, in}),
      y(compute, {rows, out}),
      gradient(DType::kF32, {out, in}),
      weight(master.tensor, compute) {
  weight.Refresh();
}

std::vector<std::pair<int64_t, int64_t>> BlockShapes(const ModelConfig& config) {
  const int64_t D = config.n_embd;
  return {{3 * D, D}, {D, D}, {4 * D, D}, {D, 4 * D}};
}

}  // namespace denseformer
