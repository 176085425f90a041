// Element-wise kernels at the shapes of the paper's models: GB/s, and the share of the rate of a
// plain loop with the same traffic (plain_loop.h), taken in turns in the same run.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <list>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "kernels/adamw.h"
#include "kernels/convert.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/gelu.h"
#include "kernels/layernorm.h"
#include "kernels/residual.h"
#include "kernels/residual_norm.h"
#include "kernels/rotary.h"
#include "plain_loop.h"
#include "tensor/storage.h"

namespace denseformer {
namespace {

constexpr int64_t kRows = 4096, kWidth = 768, kHeads = 12, kVocabulary = 50304;

double Seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Median(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

// Runs kernel and plain loop in turns. share: the loop's time over the kernel's, of the medians and
// of the minima.
void Compare(benchmark::State& state, const Traffic& traffic, const std::function<void()>& kernel) {
  PlainLoop loop(traffic);
  kernel();
  loop.Run();
  std::vector<double> kernel_times, loop_times;
  for (auto _ : state) {
    kernel_times.push_back(Seconds(kernel));
    loop_times.push_back(Seconds([&] { loop.Run(); }));
    state.SetIterationTime(kernel_times.back());
  }
  const double kernel_least = *std::min_element(kernel_times.begin(), kernel_times.end());
  const double loop_least = *std::min_element(loop_times.begin(), loop_times.end());
  state.counters["GB/s"] = static_cast<double>(traffic.bytes()) / Median(kernel_times) * 1e-9;
  state.counters["share"] = Median(loop_times) / Median(kernel_times);
  state.counters["share_min"] = loop_least / kernel_least;
}

// Tensors of normal numbers that live as long as the benchmark.
class Tensors {
 public:
  Tensor Normal(DType dtype, Shape shape) {
    Storage& storage = memory_.emplace_back(static_cast<size_t>(shape.count()) * SizeOf(dtype));
    const Tensor tensor(storage.data(), dtype, shape);
    Random random(memory_.size());
    std::vector<float> pattern(1 << 16);
    for (float& value : pattern) value = random.Normal();
    for (int64_t i = 0; i < shape.count(); ++i) {
      const float value = pattern[i % (pattern.size() - 1)];
      if (dtype == DType::kF32) {
        tensor.As<float>()[i] = value;
      } else {
        tensor.As<bf16>()[i] = bf16(value);
      }
    }
    return tensor;
  }

 private:
  std::list<Storage> memory_;
};

int64_t BytesOf(const Tensor& tensor) { return static_cast<int64_t>(tensor.bytes()); }

void BM_LayerNormForward(benchmark::State& state) {
  Tensors make;
  const Tensor x = make.Normal(DType::kF32, {kRows, kWidth});
  const Tensor weight = make.Normal(DType::kF32, {kWidth});
  const Tensor out = make.Normal(DType::kBF16, {kRows, kWidth});
  const Tensor mean = make.Normal(DType::kF32, {kRows}), rstd = make.Normal(DType::kF32, {kRows});
  Compare(state, {.read = {BytesOf(x)}, .update = {}, .write = {BytesOf(out)}},
          [&] { LayerNormForward(x, weight, {}, out, mean, rstd); });
}

void BM_LayerNormBackward(benchmark::State& state) {
  Tensors make;
  const Tensor x = make.Normal(DType::kF32, {kRows, kWidth});
  const Tensor weight = make.Normal(DType::kF32, {kWidth});
  const Tensor dout = make.Normal(DType::kBF16, {kRows, kWidth});
  const Tensor dx = make.Normal(DType::kF32, {kRows, kWidth});
  const Tensor dweight = make.Normal(DType::kF32, {kWidth});
  const Tensor scratch = make.Normal(DType::kF32, {LayerNormScratch(kWidth)});
  const Tensor mean = make.Normal(DType::kF32, {kRows}), rstd = make.Normal(DType::kF32, {kRows});
  Compare(state, {.read = {BytesOf(x), BytesOf(dout)}, .update = {BytesOf(dx)}, .write = {}}, [&] {
    LayerNormBackward(dout, x, weight, mean, rstd, {dx, dx, dweight, {}, scratch});
  });
}

void BM_GeluForward(benchmark::State& state) {
  Tensors make;
  const Tensor x = make.Normal(DType::kBF16, {kRows, 4 * kWidth});
  const Tensor y = make.Normal(DType::kBF16, {kRows, 4 * kWidth});
  Compare(state, {.read = {BytesOf(x)}, .update = {}, .write = {BytesOf(y)}},
          [&] { GeluForward(x, y); });
}

void BM_GeluBackward(benchmark::State& state) {
  Tensors make;
  const Tensor x = make.Normal(DType::kBF16, {kRows, 4 * kWidth});
  const Tensor dx = make.Normal(DType::kBF16, {kRows, 4 * kWidth});
  Compare(state, {.read = {BytesOf(x)}, .update = {BytesOf(dx)}, .write = {}},
          [&] { GeluBackward(x, dx, dx); });
}

void BM_ResidualForward(benchmark::State& state) {
  Tensors make;
  const Tensor x = make.Normal(DType::kF32, {kRows, kWidth});
  const Tensor delta = make.Normal(DType::kBF16, {kRows, kWidth});
  const Tensor y = make.Normal(DType::kF32, {kRows, kWidth});
  const Dropout dropout{.probability = static_cast<float>(state.range(0)) / 100, .seed = 1};
  Compare(state, {.read = {BytesOf(x), BytesOf(delta)}, .update = {}, .write = {BytesOf(y)}},
          [&] { ResidualForward(x, delta, {}, dropout, y); });
}

void BM_ResidualBackward(benchmark::State& state) {
  Tensors make;
  const Tensor x = make.Normal(DType::kF32, {kRows, kWidth});
  const Tensor dy = make.Normal(DType::kF32, {kRows, kWidth});
  const Tensor ddelta = make.Normal(DType::kBF16, {kRows, kWidth});
  Compare(state, {.read = {BytesOf(dy)}, .update = {}, .write = {BytesOf(ddelta)}}, [&] {
    ResidualBackward(dy, x, {}, {}, {dy, ddelta, {}, {}});
  });
}

// What the fused pass saves: `fused` 0 runs the kernels one after the other.
void BM_ResidualNormBackward(benchmark::State& state) {
  Tensors make;
  const Tensor dout = make.Normal(DType::kBF16, {kRows, kWidth});
  const Tensor y = make.Normal(DType::kF32, {kRows, kWidth});
  const Tensor weight = make.Normal(DType::kF32, {kWidth});
  const Tensor dx = make.Normal(DType::kF32, {kRows, kWidth});
  const Tensor ddelta = make.Normal(DType::kBF16, {kRows, kWidth});
  const Tensor dweight = make.Normal(DType::kF32, {kWidth});
  const Tensor scratch = make.Normal(DType::kF32, {ResidualNormScratch(kWidth)});
  const Tensor mean = make.Normal(DType::kF32, {kRows}), rstd = make.Normal(DType::kF32, {kRows});
  const bool fused = state.range(0) != 0;
  Compare(
      state,
      {.read = {BytesOf(dout), BytesOf(y)}, .update = {BytesOf(dx)}, .write = {BytesOf(ddelta)}},
      [&] {
        if (fused) {
          ResidualNormBackward(
              {dout, y, weight, mean, rstd, dx, dweight, {}, {}, {}, {}, dx, ddelta, {}, scratch});
        } else {
          LayerNormBackward(dout, y, weight, mean, rstd, {dx, dx, dweight, {}, scratch});
          ResidualBackward(dx, {}, {}, {}, {dx, ddelta, {}, {}});
        }
      });
}

void BM_Rotary(benchmark::State& state) {
  Tensors make;
  const Tensor qkv = make.Normal(DType::kBF16, {kRows / 256, 256, 3 * kWidth});
  const Tensor table = make.Normal(DType::kF32, {256, kWidth / kHeads});
  FillRotaryTable(10000, table);
  Compare(state, {.read = {}, .update = {BytesOf(qkv) * 2 / 3}, .write = {}},
          [&] { RotaryForward(table, kHeads, qkv); });
}

void BM_Convert(benchmark::State& state) {
  Tensors make;
  const Tensor x = make.Normal(DType::kF32, {kRows, kWidth});
  const Tensor y = make.Normal(DType::kBF16, {kRows, kWidth});
  Compare(state, {.read = {BytesOf(x)}, .update = {}, .write = {BytesOf(y)}},
          [&] { Convert(x, y); });
}

void BM_EmbeddingBackward(benchmark::State& state) {
  Tensors make;
  const Tensor dout = make.Normal(DType::kF32, {kRows, kWidth});
  const Tensor dweight = make.Normal(DType::kF32, {kVocabulary, kWidth});
  Random random(1);
  std::vector<int32_t> tokens(kRows);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random.Below(kVocabulary));
  Compare(state, {.read = {BytesOf(dout)}, .update = {BytesOf(dout)}, .write = {}},
          [&] { EmbeddingBackward(tokens, dout, dweight); });
}

// A chunk of rows as the head gives them.
void BM_CrossEntropy(benchmark::State& state) {
  constexpr int64_t kChunk = 256;
  Tensors make;
  const Tensor logits = make.Normal(DType::kF32, {kChunk, kVocabulary});
  const Tensor dlogits = make.Normal(DType::kBF16, {kChunk, kVocabulary});
  const std::vector<int32_t> targets(kChunk, 7);
  std::vector<float> losses(kChunk);
  Compare(state, {.read = {BytesOf(logits)}, .update = {}, .write = {BytesOf(dlogits)}},
          [&] { CrossEntropyForwardBackward(logits, targets, 1e-3f, losses, dlogits); });
}

void BM_AdamW(benchmark::State& state) {
  const int64_t count = state.range(0) << 20;
  Tensors make;
  std::vector<std::span<float>> parts;
  for (int i = 0; i < 4; ++i) {
    parts.emplace_back(make.Normal(DType::kF32, {count}).f32(), static_cast<size_t>(count));
  }
  for (float& value : parts[3]) value *= value;
  const int64_t bytes = count * 4;
  Compare(state, {.read = {}, .update = {bytes, bytes, bytes, bytes}, .write = {}},
          [&] { AdamWUpdate({.step = 100}, parts[0], parts[1], parts[2], parts[3]); });
}

void BM_SumOfSquares(benchmark::State& state) {
  const int64_t count = 32 << 20;
  Tensors make;
  const Tensor x = make.Normal(DType::kF32, {count});
  Compare(state, {.read = {BytesOf(x)}, .update = {}, .write = {}}, [&] {
    benchmark::DoNotOptimize(SumOfSquares({x.f32(), static_cast<size_t>(count)}));
  });
}

BENCHMARK(BM_LayerNormForward)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_LayerNormBackward)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_GeluForward)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_GeluBackward)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_ResidualForward)
    ->Arg(0)
    ->Arg(10)
    ->ArgName("dropout%")
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_ResidualBackward)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_ResidualNormBackward)
    ->Arg(0)
    ->Arg(1)
    ->ArgName("fused")
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_Rotary)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_Convert)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_EmbeddingBackward)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_CrossEntropy)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_AdamW)->Arg(4)->Arg(32)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_SumOfSquares)->UseManualTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace denseformer

BENCHMARK_MAIN();
