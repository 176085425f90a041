// The GEMMs of a block and of the head, forward and both gradients, with oneDNN's time beside ours;
// and the GEMM before GELU with and without GELU in its epilogue.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "kernels/gelu.h"
#include "kernels/gemm/backend.h"
#include "perf/kernel_bench.h"

namespace denseformer {
namespace {

const GemmBackend& OneDnn() { return *FindGemmBackend("onednn"); }

struct ComparedLayer {
  ComparedLayer(DType compute, int64_t out, int64_t in, int64_t rows)
      : layer(compute, out, in, rows), onednn(layer.master.tensor, compute, OneDnn()) {
    onednn.Refresh();
  }
  LinearLayer layer;
  PackedWeight onednn;
};

// As in evaluation, and as in training, which keeps the input of GELU too. Each variant has a
// result of its own, so that none finds its own in cache.
struct GeluLayer {
  explicit GeluLayer(const KernelBenchOptions& options)
      : D(options.config.n_embd),
        rows(options.rows),
        flops(8.0 * static_cast<double>(rows * D) * static_cast<double>(D)),
        up(options.compute, 4 * D, D, rows),
        bias(DType::kF32, {4 * D}),
        fused(options.compute, {rows, 4 * D}),
        kept(options.compute, {rows, 4 * D}) {}

  std::vector<Variant> Variants() {
    const Tensor x = up.x.tensor, gelu = up.y.tensor, other = fused.tensor, fc = kept.tensor;
    const std::string forward = fmt::format("{} x {} x {} forward", rows, 4 * D, D);
    return {{forward + ", then GELU",
             [=, this] {
               LinearForward(x, up.weight, bias.tensor, gelu);
               GeluForward(gelu, gelu);
             }},
            {forward + " with GELU",
             [=, this] { LinearGeluForward(x, up.weight, bias.tensor, Tensor(), other); }},
            {forward + ", then GELU, both kept",
             [=, this] {
               LinearForward(x, up.weight, bias.tensor, fc);
               GeluForward(fc, gelu);
             }},
            {forward + " with GELU, both kept",
             [=, this] { LinearGeluForward(x, up.weight, bias.tensor, fc, other); }}};
  }

  int64_t D, rows;
  double flops;
  LinearLayer up;
  FilledTensor bias, fused, kept;
};

// What a row compares with, relative to the row; 0: nothing.
struct Measured {
  Variant variant;
  double flops = 0;
  int baseline_before = 0;
};

void AddLayer(ComparedLayer& compared, const std::string& shape, double flops,
              std::vector<Measured>& to) {
  LinearLayer* layer = &compared.layer;
  const PackedWeight* onednn = &compared.onednn;
  const Tensor x = layer->x.tensor, y = layer->y.tensor, gradient = layer->gradient.tensor;
  to.push_back(
      {{shape + " forward, oneDNN", [=] { LinearForward(x, *onednn, Tensor(), y); }}, flops});
  to.push_back({{shape + " forward", [=] { layer->Forward(); }}, flops, 1});
  to.push_back(
      {{shape + " input gradient, oneDNN", [=] { LinearBackwardInput(y, *onednn, x); }}, flops});
  to.push_back(
      {{shape + " input gradient", [=] { LinearBackwardInput(y, layer->weight, x); }}, flops, 1});
  to.push_back({{shape + " weight gradient, oneDNN",
                 [=] {
                   const ScopedGemmBackend backend(&OneDnn());
                   LinearBackwardWeight(y, x, gradient, /*add=*/false);
                 }},
                flops});
  to.push_back(
      {{shape + " weight gradient", [=] { LinearBackwardWeight(y, x, gradient, /*add=*/false); }},
       flops,
       1});
  to.push_back({{shape + " packing", [=] { layer->weight.Refresh(); }}, 0, 5});
}

}  // namespace

BenchTable BenchGemm(const BenchOptions& bench_options) {
  const KernelBenchOptions options = ParseKernelOptions(bench_options);
  auto shapes = BlockShapes(options.config);
  shapes.push_back({options.config.vocab_size, options.config.n_embd});
  std::vector<std::unique_ptr<ComparedLayer>> layers;
  std::vector<Measured> measured;
  for (const auto& [out, in] : shapes) {
    // The head works on chunks of rows.
    const int64_t rows =
        out > 4 * options.config.n_embd ? std::min<int64_t>(options.rows, 512) : options.rows;
    layers.push_back(std::make_unique<ComparedLayer>(options.compute, out, in, rows));
    AddLayer(*layers.back(), fmt::format("{} x {} x {}", rows, out, in),
             2.0 * static_cast<double>(rows * out) * static_cast<double>(in), measured);
  }
  GeluLayer gelu(options);
  int before = 0;  // a pass of its own, then the epilogue that is compared with it
  for (Variant& variant : gelu.Variants()) {
    measured.push_back({std::move(variant), gelu.flops, before});
    before = 1 - before;
  }
  std::vector<Variant> variants;
  for (const Measured& row : measured) variants.push_back(row.variant);
  BenchTable table = MakeTable("GEMMs", Interleave(variants, options.interleave), 0, "flops");
  for (size_t r = 0; r < table.rows.size(); ++r) {
    table.rows[r].work = measured[r].flops;
    if (measured[r].baseline_before > 0) {
      table.rows[r].baseline = static_cast<int>(r) - measured[r].baseline_before;
    }
  }
  table.settings = KernelSettings(options);
  return table;
}

}  // namespace denseformer
