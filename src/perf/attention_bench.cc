// Attention of one block, forward and backward, against the block's GEMMs.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "kernels/attention/attention.h"
#include "perf/kernel_bench.h"

namespace denseformer {

BenchTable BenchAttention(const BenchOptions& bench_options) {
  const KernelBenchOptions options = ParseKernelOptions(bench_options);
  const int64_t D = options.config.n_embd, T = options.length,
                B = std::max<int64_t>(1, options.rows / T);
  const int64_t heads = options.config.n_head;
  FilledTensor qkv(options.compute, {B, T, 3 * D}), out(options.compute, {B, T, D}),
      dout(options.compute, {B, T, D});
  FilledTensor dqkv(options.compute, {B, T, 3 * D}), lse(DType::kF32, {B, heads, T});
  std::vector<std::unique_ptr<LinearLayer>> layers;
  for (const auto& [outputs, inputs] : BlockShapes(options.config)) {
    layers.push_back(std::make_unique<LinearLayer>(options.compute, outputs, inputs, B * T));
  }
  const std::vector<Variant> variants = {
      {"GEMMs of a block, forward",
       [&] {
         for (auto& layer : layers) layer->Forward();
       }},
      {"attention forward",
       [&] { AttentionForward(qkv.tensor, heads, {}, out.tensor, lse.tensor); }},
      {"GEMMs of a block, backward",
       [&] {
         for (auto& layer : layers) layer->Backward();
       }},
      {"attention backward", [&] {
         AttentionBackward(qkv.tensor, out.tensor, lse.tensor, dout.tensor, heads, {}, dqkv.tensor);
       }}};
  BenchTable table =
      MakeTable("causal attention of one block", Interleave(variants, options.interleave),
                static_cast<double>(B * T), "tokens");
  table.settings = KernelSettings(options);
  table.settings.push_back(
      {"heads", fmt::format("{} of {}, sequences of {}", heads, options.config.head_size(), T)});
  table.rows[1].baseline = 0;
  table.rows[3].baseline = 2;
  return table;
}

}  // namespace denseformer
