// AdamW over the parameters of a model, against a loop of equal memory traffic.
#include "base/parallel.h"
#include "denseformer/depth_pattern.h"
#include "kernels/adamw.h"
#include "model/parameters.h"
#include "perf/kernel_bench.h"
#include "perf/memory_limit.h"

namespace denseformer {

BenchTable BenchOptimizer(const BenchOptions& bench_options) {
  const KernelBenchOptions options = ParseKernelOptions(bench_options);
  const ParameterTable parameters(options.config,
                                  DepthPattern::Parse(options.config.dwa, options.config.n_layer));
  const int64_t n = parameters.buffer_size();
  FilledTensor weights(DType::kF32, {n}), gradients(DType::kF32, {n}), first(DType::kF32, {n}),
      second(DType::kF32, {n});
  auto span = [&](FilledTensor& filled) {
    return std::span<float>(filled.tensor.f32(), static_cast<size_t>(n));
  };
  AdamWStep step;
  const std::vector<Variant> variants = {
      {"loop of equal traffic",
       [&] { TouchFour(span(weights), span(gradients), span(first), span(second)); }},
      {"AdamW",
       [&] { AdamWUpdate(step, span(weights), span(gradients), span(first), span(second)); }},
      {"squares of all gradients", [&] { SumOfSquares(span(gradients)); }}};
  BenchTable table = MakeTable("optimizer step", Interleave(variants, options.interleave),
                               static_cast<double>(n), "parameters");
  table.settings = {{"parameters", std::to_string(n)}, {"threads", std::to_string(NumThreads())}};
  table.rows[1].baseline = 0;
  return table;
}

}  // namespace denseformer
