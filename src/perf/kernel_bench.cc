#include "perf/kernel_bench.h"

#include <fmt/format.h>

#include <memory>

#include "base/parallel.h"
#include "base/random.h"
#include "denseformer/tokenizer.h"
#include "kernels/adamw.h"
#include "kernels/attention/attention.h"
#include "kernels/gelu.h"
#include "kernels/gemm/backend.h"
#include "kernels/gemm/gemm.h"
#include "kernels/memory_limit.h"
#include "model/parameters.h"
#include "tensor/storage.h"

namespace denseformer {
namespace {

// Memory with numbers in it, of the size of ordinary activations.
struct Filled {
  Filled(DType dtype, Shape shape, uint64_t seed = 1)
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
  Storage storage;
  Tensor tensor;
};

std::vector<std::pair<std::string, std::string>> Settings(const KernelBenchOptions& options) {
  return {{"width", std::to_string(options.config.n_embd)},
          {"tokens", std::to_string(options.rows)},
          {"precision", DTypeName(options.compute)},
          {"threads", std::to_string(NumThreads())},
          {"products", GemmDescription()}};
}

const GemmBackend& OneDnn() { return *FindGemmBackend("onednn"); }

// The four products of a block.
struct BlockProducts {
  BlockProducts(const KernelBenchOptions& options, int64_t out, int64_t in, int64_t rows)
      : master(DType::kF32, {out, in}),
        x(options.compute, {rows, in}),
        y(options.compute, {rows, out}),
        gradient(DType::kF32, {out, in}),
        weight(master.tensor, options.compute),
        onednn(master.tensor, options.compute, OneDnn()) {
    weight.Refresh();
    onednn.Refresh();
  }
  void Forward() { LinearForward(x.tensor, weight, Tensor(), y.tensor); }
  void Backward() {
    LinearBackwardInput(y.tensor, weight, x.tensor);
    LinearBackwardWeight(y.tensor, x.tensor, gradient.tensor, /*add=*/false);
  }

  Filled master, x, y, gradient;
  PackedWeight weight;
  PackedWeight onednn;
};

// The product before GELU, with it in a pass of its own and in one; as in evaluation, and as in
// training, which keeps the input of GELU too.
struct GeluProducts {
  explicit GeluProducts(const KernelBenchOptions& options)
      : D(options.config.n_embd),
        rows(options.rows),
        flops(8.0 * static_cast<double>(rows * D) * static_cast<double>(D)),
        up(options, 4 * D, D, rows),
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
  BlockProducts up;
  Filled bias, fused, kept;  // a result each, so that neither finds its own in cache
};

std::vector<std::pair<int64_t, int64_t>> BlockShapes(const ModelConfig& config) {
  const int64_t D = config.n_embd;
  return {{3 * D, D}, {D, D}, {4 * D, D}, {D, 4 * D}};
}

}  // namespace

BenchTable BenchAttention(const KernelBenchOptions& options) {
  const int64_t D = options.config.n_embd, T = options.length,
                B = std::max<int64_t>(1, options.rows / T);
  const int64_t heads = options.config.n_head;
  Filled qkv(options.compute, {B, T, 3 * D}), out(options.compute, {B, T, D}),
      dout(options.compute, {B, T, D});
  Filled dqkv(options.compute, {B, T, 3 * D}), lse(DType::kF32, {B, heads, T});
  std::vector<std::unique_ptr<BlockProducts>> products;
  for (const auto& [o, i] : BlockShapes(options.config)) {
    products.push_back(std::make_unique<BlockProducts>(options, o, i, B * T));
  }
  const std::vector<Variant> variants = {
      {"products of a block, forward",
       [&] {
         for (auto& p : products) p->Forward();
       }},
      {"attention forward",
       [&] { AttentionForward(qkv.tensor, heads, {}, out.tensor, lse.tensor); }},
      {"products of a block, backward",
       [&] {
         for (auto& p : products) p->Backward();
       }},
      {"attention backward", [&] {
         AttentionBackward(qkv.tensor, out.tensor, lse.tensor, dout.tensor, heads, {}, dqkv.tensor);
       }}};
  BenchTable table =
      MakeTable("causal attention of one block", Interleave(variants, options.interleave),
                static_cast<double>(B * T), "tokens");
  table.settings = Settings(options);
  table.settings.push_back(
      {"heads", fmt::format("{} of {}, sequences of {}", heads, options.config.head_size(), T)});
  table.rows[1].baseline = 0;
  table.rows[3].baseline = 2;
  return table;
}

BenchTable BenchGemm(const KernelBenchOptions& options) {
  auto shapes = BlockShapes(options.config);
  shapes.push_back({options.config.vocab_size, options.config.n_embd});
  std::vector<std::unique_ptr<BlockProducts>> products;
  std::vector<Variant> variants;
  std::vector<double> flops;
  for (const auto& [out, in] : shapes) {
    // The head works on chunks of rows.
    const int64_t rows =
        out > 4 * options.config.n_embd ? std::min<int64_t>(options.rows, 512) : options.rows;
    products.push_back(std::make_unique<BlockProducts>(options, out, in, rows));
    BlockProducts* p = products.back().get();
    const std::string shape = fmt::format("{} x {} x {}", rows, out, in);
    const Tensor x = p->x.tensor, y = p->y.tensor, gradient = p->gradient.tensor;
    variants.push_back(
        {shape + " forward, oneDNN", [=] { LinearForward(x, p->onednn, Tensor(), y); }});
    variants.push_back({shape + " forward", [=] { p->Forward(); }});
    variants.push_back(
        {shape + " input gradient, oneDNN", [=] { LinearBackwardInput(y, p->onednn, x); }});
    variants.push_back({shape + " input gradient", [=] { LinearBackwardInput(y, p->weight, x); }});
    variants.push_back({shape + " weight gradient, oneDNN", [=] {
                          const ScopedGemmBackend onednn(&OneDnn());
                          LinearBackwardWeight(y, x, gradient, /*add=*/false);
                        }});
    variants.push_back(
        {shape + " weight gradient", [=] { LinearBackwardWeight(y, x, gradient, /*add=*/false); }});
    variants.push_back({shape + " packing", [=] { p->weight.Refresh(); }});
    const double work = 2.0 * static_cast<double>(rows * out) * static_cast<double>(in);
    flops.insert(flops.end(), 6, work);
    flops.push_back(0);
  }
  const size_t plain = variants.size();
  GeluProducts gelu(options);
  for (Variant& variant : gelu.Variants()) {
    variants.push_back(std::move(variant));
    flops.push_back(gelu.flops);
  }
  BenchTable table =
      MakeTable("matrix products", Interleave(variants, options.interleave), 0, "flops");
  for (size_t r = 0; r < table.rows.size(); ++r) {
    table.rows[r].work = flops[r];
    if (r >= plain) {
      if ((r - plain) % 2 == 1) table.rows[r].baseline = static_cast<int>(r) - 1;
      continue;
    }
    if (r % 7 % 2 == 1 && r % 7 < 6) table.rows[r].baseline = static_cast<int>(r) - 1;
    if (r % 7 == 6) table.rows[r].baseline = static_cast<int>(r) - 5;
  }
  table.settings = Settings(options);
  return table;
}

BenchTable BenchOptimizer(const KernelBenchOptions& options) {
  const ParameterTable parameters(options.config,
                                  DepthPattern::Parse(options.config.dwa, options.config.n_layer));
  const int64_t n = parameters.buffer_size();
  Filled weights(DType::kF32, {n}), gradients(DType::kF32, {n}), first(DType::kF32, {n}),
      second(DType::kF32, {n});
  auto span = [&](Filled& filled) {
    return std::span<float>(filled.tensor.f32(), static_cast<size_t>(n));
  };
  AdamWStep step;
  const std::vector<Variant> variants = {
      {"loop of equal traffic",
       [&] { TouchFour(span(weights), span(gradients), span(first), span(second)); }},
      {"AdamW",
       [&] { AdamWUpdate(step, span(weights), span(gradients), span(first), span(second)); }},
      {"squares of all gradients", [&] { SumOfSquares(span(gradients)); }}};
  BenchTable table = MakeTable("optimiser step", Interleave(variants, options.interleave),
                               static_cast<double>(n), "parameters");
  table.settings = {{"parameters", std::to_string(n)}, {"threads", std::to_string(NumThreads())}};
  table.rows[1].baseline = 0;
  return table;
}

BenchTable BenchTokenizer(const std::string& path, const std::string& text,
                          const InterleaveOptions& interleave) {
  const Tokenizer tokenizer = Tokenizer::Load(path);
  const int threads = NumThreads();
  auto encode = [&](int n) {
    SetNumThreads(n);
    tokenizer.Encode(text);
    SetNumThreads(threads);
  };
  std::vector<Variant> variants = {{"1 thread", [&] { encode(1); }}};
  if (threads > 1)
    variants.push_back({fmt::format("{} threads", threads), [&] { encode(threads); }});
  BenchTable table = MakeTable("encoding text", Interleave(variants, interleave),
                               static_cast<double>(text.size()), "bytes");
  table.settings = {{"text", std::to_string(text.size()) + " bytes"}, {"tokenizer", path}};
  if (threads > 1) table.rows[1].baseline = 0;
  return table;
}

}  // namespace denseformer
