// Kernels that are bound by memory, each against a loop of the same memory traffic in the same
// rounds.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <list>
#include <memory>

#include "base/parallel.h"
#include "base/random.h"
#include "kernels/convert.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/fused_add_norm_backward.h"
#include "kernels/gelu.h"
#include "kernels/layernorm.h"
#include "kernels/residual.h"
#include "kernels/rotary.h"
#include "perf/kernel_bench.h"
#include "perf/memory_limit.h"

namespace denseformer {
namespace {

// Shapes of a model, and the tensors of one kernel.
class Tensors {
 public:
  explicit Tensors(const KernelBenchOptions& options)
      : N(options.rows),
        T(options.length),
        D(options.config.n_embd),
        H(options.config.n_head),
        V(options.config.vocab_size) {}

  Tensor F32(Shape shape) { return Make(DType::kF32, shape); }
  Tensor Bf16(Shape shape) { return Make(DType::kBF16, shape); }

  const int64_t N, T, D, H, V;

 private:
  Tensor Make(DType dtype, Shape shape) {
    return memory_.emplace_back(dtype, shape, /*seed=*/memory_.size() + 1).tensor;
  }
  std::list<FilledTensor> memory_;
};

// One call of a kernel, and the memory that it has to move.
struct Case {
  std::string name;
  MemoryTraffic traffic;
  std::function<void()> run;
};

int64_t BytesOf(const Tensor& tensor) { return static_cast<int64_t>(tensor.bytes()); }

Case LayerNormForwardCase(Tensors& make) {
  const Tensor x = make.F32({make.N, make.D}), weight = make.F32({make.D});
  const Tensor out = make.Bf16({make.N, make.D});
  const Tensor mean = make.F32({make.N}), rstd = make.F32({make.N});
  return {"LayerNorm forward", {.read = {BytesOf(x)}, .update = {}, .write = {BytesOf(out)}}, [=] {
            LayerNormForward(x, weight, {}, out, mean, rstd);
          }};
}

Case LayerNormBackwardCase(Tensors& make) {
  const Tensor x = make.F32({make.N, make.D}), weight = make.F32({make.D});
  const Tensor dout = make.Bf16({make.N, make.D}), dx = make.F32({make.N, make.D});
  const Tensor dweight = make.F32({make.D}), scratch = make.F32({LayerNormScratch(make.D)});
  const Tensor mean = make.F32({make.N}), rstd = make.F32({make.N});
  return {"LayerNorm backward",
          {.read = {BytesOf(x), BytesOf(dout)}, .update = {BytesOf(dx)}, .write = {}},
          [=] {
            LayerNormBackward(dout, x, weight, mean, rstd, {dx, dx, dweight, {}, scratch});
          }};
}

Case GeluForwardCase(Tensors& make) {
  const Tensor x = make.Bf16({make.N, 4 * make.D}), y = make.Bf16({make.N, 4 * make.D});
  return {"GELU forward", {.read = {BytesOf(x)}, .update = {}, .write = {BytesOf(y)}}, [=] {
            GeluForward(x, y);
          }};
}

Case GeluBackwardCase(Tensors& make) {
  const Tensor x = make.Bf16({make.N, 4 * make.D}), dx = make.Bf16({make.N, 4 * make.D});
  return {"GELU backward", {.read = {BytesOf(x)}, .update = {BytesOf(dx)}, .write = {}}, [=] {
            GeluBackward(x, dx, dx);
          }};
}

Case ResidualCase(Tensors& make, float probability, const char* name) {
  const Tensor x = make.F32({make.N, make.D}), delta = make.Bf16({make.N, make.D});
  const Tensor y = make.F32({make.N, make.D});
  const Dropout dropout{.probability = probability, .seed = 1};
  return {name, {.read = {BytesOf(x), BytesOf(delta)}, .update = {}, .write = {BytesOf(y)}}, [=] {
            ResidualForward(x, delta, {}, dropout, y);
          }};
}
Case ResidualForwardCase(Tensors& make) { return ResidualCase(make, 0, "residual forward"); }
Case ResidualDropoutCase(Tensors& make) {
  return ResidualCase(make, 0.1f, "residual forward, dropout 0.1");
}

Case ResidualBackwardCase(Tensors& make) {
  const Tensor x = make.F32({make.N, make.D}), dy = make.F32({make.N, make.D});
  const Tensor ddelta = make.Bf16({make.N, make.D});
  return {
      "residual backward", {.read = {BytesOf(dy)}, .update = {}, .write = {BytesOf(ddelta)}}, [=] {
        ResidualBackward(dy, x, {}, {}, {dy, ddelta, {}, {}});
      }};
}

// What fusing saves: the kernels one after the other, and in one pass.
Case NormCase(Tensors& make, bool fused) {
  const Tensor dout = make.Bf16({make.N, make.D}), y = make.F32({make.N, make.D});
  const Tensor weight = make.F32({make.D}), dx = make.F32({make.N, make.D});
  const Tensor ddelta = make.Bf16({make.N, make.D}), dweight = make.F32({make.D});
  const Tensor scratch = make.F32({FusedAddNormScratch(make.D)});
  const Tensor mean = make.F32({make.N}), rstd = make.F32({make.N});
  return {
      fused ? "residual and LayerNorm backward, fused" : "residual, then LayerNorm backward",
      {.read = {BytesOf(dout), BytesOf(y)}, .update = {BytesOf(dx)}, .write = {BytesOf(ddelta)}},
      [=] {
        if (fused) {
          FusedAddNormBackward(
              {dout, y, weight, mean, rstd, dx, dweight, {}, {}, {}, {}, dx, ddelta, {}, scratch});
        } else {
          LayerNormBackward(dout, y, weight, mean, rstd, {dx, dx, dweight, {}, scratch});
          ResidualBackward(dx, {}, {}, {}, {dx, ddelta, {}, {}});
        }
      }};
}
Case SeparateNormCase(Tensors& make) { return NormCase(make, /*fused=*/false); }
Case FusedNormCase(Tensors& make) { return NormCase(make, /*fused=*/true); }

Case RotaryCase(Tensors& make) {
  const Tensor qkv = make.Bf16({make.N / make.T, make.T, 3 * make.D});
  const Tensor table = make.F32({make.T, make.D / make.H});
  FillRotaryTable(10000, table);
  const int64_t heads = make.H;
  return {"rotary embeddings", {.read = {}, .update = {BytesOf(qkv) * 2 / 3}, .write = {}}, [=] {
            RotaryForward(table, heads, qkv);
          }};
}

Case ConvertCase(Tensors& make) {
  const Tensor x = make.F32({make.N, make.D}), y = make.Bf16({make.N, make.D});
  return {"fp32 to bf16", {.read = {BytesOf(x)}, .update = {}, .write = {BytesOf(y)}}, [=] {
            Convert(x, y);
          }};
}

Case EmbeddingBackwardCase(Tensors& make) {
  const Tensor dout = make.F32({make.N, make.D}), dweight = make.F32({make.V, make.D});
  Random random(/*key=*/1);
  std::vector<int32_t> tokens(static_cast<size_t>(make.N));
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(random.Below(static_cast<uint64_t>(make.V)));
  }
  return {"embedding backward",
          {.read = {BytesOf(dout)}, .update = {BytesOf(dout)}, .write = {}},
          [=] { EmbeddingBackward(tokens, dout, dweight); }};
}

// A chunk of rows as the head gives them.
Case CrossEntropyCase(Tensors& make) {
  const int64_t chunk = std::min<int64_t>(make.N, 256);
  const Tensor logits = make.F32({chunk, make.V}), dlogits = make.Bf16({chunk, make.V});
  const std::vector<int32_t> targets(static_cast<size_t>(chunk), 7);
  auto losses = std::make_shared<std::vector<float>>(static_cast<size_t>(chunk));
  return {"cross-entropy forward and backward",
          {.read = {BytesOf(logits)}, .update = {}, .write = {BytesOf(dlogits)}},
          [=] { CrossEntropyForwardBackward(logits, targets, 1e-3f, *losses, dlogits); }};
}

constexpr Case (*kCases[])(Tensors&) = {
    LayerNormForwardCase, LayerNormBackwardCase, GeluForwardCase,
    GeluBackwardCase,     ResidualForwardCase,   ResidualDropoutCase,
    ResidualBackwardCase, SeparateNormCase,      FusedNormCase,
    RotaryCase,           ConvertCase,           EmbeddingBackwardCase,
    CrossEntropyCase};

}  // namespace

BenchTable BenchElementwise(const BenchOptions& bench_options) {
  const KernelBenchOptions options = ParseKernelOptions(bench_options);
  BenchTable table;
  table.title = "kernels bound by memory";
  table.settings = {{"tokens", std::to_string(options.rows)},
                    {"width", std::to_string(options.config.n_embd)},
                    {"vocabulary", std::to_string(options.config.vocab_size)},
                    {"threads", std::to_string(NumThreads())}};
  for (const auto make : kCases) {
    Tensors tensors(options);
    const Case kernel = make(tensors);
    TrafficLoop loop(kernel.traffic);
    InterleaveOptions interleave = options.interleave;
    if (!interleave.title.empty()) interleave.title += ", " + kernel.name;
    const BenchTable measured = MakeTable(
        "",
        Interleave({{kernel.name + ", loop", [&] { loop.Run(); }}, {kernel.name, kernel.run}},
                   interleave),
        static_cast<double>(kernel.traffic.bytes()), "bytes");
    const int first = static_cast<int>(table.rows.size());
    table.rows.insert(table.rows.end(), measured.rows.begin(), measured.rows.end());
    table.rows[static_cast<size_t>(first) + 1].limit = first;
  }
  return table;
}

}  // namespace denseformer
