#include "kernels/dwa/mix_rows.h"

#include "base/error.h"
#include "kernels/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dwa/mix_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
const T* Row(const RowSources& sources, int k) {
  return static_cast<const T*>(sources.rows[k]);
}

// Calls body(tag, e) for every element e of a row, a vector at a time and then one by one.
template <class F>
HWY_INLINE void ForElements(int64_t cols, F body) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t e = 0;
  for (; e + lanes <= cols; e += lanes) body(d, e);
  for (; e < cols; ++e) body(d1, e);
}

// dots[v] = <row, vector v> for kVectors vectors in one pass over the row.
template <int kVectors, class T>
void DotGroup(const T* row, int64_t cols, const float* const* vector, float* dots) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> sums[kVectors];
  for (int v = 0; v < kVectors; ++v) sums[v] = hn::Zero(d);
  int64_t e = 0;
  for (; e + lanes <= cols; e += lanes) {
    const auto x = LoadF32(d, row + e);
    for (int v = 0; v < kVectors; ++v) {
      sums[v] = hn::MulAdd(x, hn::LoadU(d, vector[v] + e), sums[v]);
    }
  }
  for (int v = 0; v < kVectors; ++v) dots[v] = hn::GetLane(hn::SumOfLanes(d, sums[v]));
  for (; e < cols; ++e) {
    for (int v = 0; v < kVectors; ++v) dots[v] += static_cast<float>(row[e]) * vector[v][e];
  }
}

template <class T>
void DotRows(const RowSources& sources, int64_t cols, int vectors, const float* const* vector,
             float* dots) {
  for (int k = 0; k < sources.count; ++k) {
    const T* row = Row<T>(sources, k);
    float* to = dots + static_cast<int64_t>(k) * vectors;
    int v = 0;
    for (; v + 4 <= vectors; v += 4) DotGroup<4>(row, cols, vector + v, to + v);
    for (; v + 2 <= vectors; v += 2) DotGroup<2>(row, cols, vector + v, to + v);
    for (; v < vectors; ++v) DotGroup<1>(row, cols, vector + v, to + v);
  }
}

void Dots(const RowSources& sources, int64_t cols, int vectors, const float* const* vector,
          float* dots) {
  if (sources.dtype == DType::kF32) {
    DotRows<float>(sources, cols, vectors, vector, dots);
  } else {
    DotRows<bf16>(sources, cols, vectors, vector, dots);
  }
}

template <class T>
void SquareRows(const RowSources& sources, int64_t cols, float* squares) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int k = 0; k < sources.count; ++k) {
    const T* row = Row<T>(sources, k);
    auto sum = hn::Zero(d);
    int64_t e = 0;
    for (; e + lanes <= cols; e += lanes) {
      const auto x = LoadF32(d, row + e);
      sum = hn::MulAdd(x, x, sum);
    }
    squares[k] = hn::GetLane(hn::SumOfLanes(d, sum));
    for (; e < cols; ++e) {
      const float x = static_cast<float>(row[e]);
      squares[k] += x * x;
    }
  }
}

void Squares(const RowSources& sources, int64_t cols, float* squares) {
  if (sources.dtype == DType::kF32) {
    SquareRows<float>(sources, cols, squares);
  } else {
    SquareRows<bf16>(sources, cols, squares);
  }
}

// V vectors from element e on.
template <int kOutputs, int V, class T, class D>
HWY_INLINE void MixTile(D d, const RowMix& mix, int64_t e, const bool (&any)[kMostStreams]) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<D> sums[kOutputs][V], x[V];
  for (int o = 0; o < kOutputs; ++o) {
    for (int v = 0; v < V; ++v) sums[o][v] = hn::Set(d, any[o] ? -0.0f : 0.0f);
  }
  const auto add = [&](const float* weights) HWY_ATTR {
    for (int o = 0; o < kOutputs; ++o) {
      if (weights[o] == 0) continue;
      const auto weight = hn::Set(d, weights[o]);
      for (int v = 0; v < V; ++v) sums[o][v] = hn::MulAdd(weight, x[v], sums[o][v]);
    }
  };
  for (int k = 0; k < mix.sources.count; ++k) {
    const T* from = Row<T>(mix.sources, k) + e;
    for (int v = 0; v < V; ++v) x[v] = LoadF32(d, from + v * lanes);
    add(mix.weights + static_cast<int64_t>(k) * kOutputs);
  }
  if (mix.newest != nullptr) {
    for (int v = 0; v < V; ++v) x[v] = hn::LoadU(d, mix.newest + e + v * lanes);
    add(mix.newest_weights);
  }
  for (int o = 0; o < kOutputs; ++o) {
    for (int v = 0; v < V; ++v) {
      float* to = mix.output[o] + e + v * lanes;
      hn::StoreU(mix.add ? hn::Add(hn::LoadU(d, to), sums[o][v]) : sums[o][v], d, to);
    }
  }
}

template <int kOutputs, class T>
void MixOutputs(const RowMix& mix, int64_t cols) {
  bool any[kMostStreams] = {};
  for (int o = 0; o < kOutputs; ++o) {
    for (int k = 0; k < mix.sources.count && !any[o]; ++k) {
      any[o] = mix.weights[static_cast<int64_t>(k) * kOutputs + o] != 0;
    }
    if (mix.newest != nullptr && mix.newest_weights[o] != 0) any[o] = true;
  }
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  constexpr int V = kOutputs <= 2 ? 4 : 2;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t e = 0;
  for (; e + V * lanes <= cols; e += V * lanes) MixTile<kOutputs, V, T>(d, mix, e, any);
  for (; e + lanes <= cols; e += lanes) MixTile<kOutputs, 1, T>(d, mix, e, any);
  for (; e < cols; ++e) MixTile<kOutputs, 1, T>(d1, mix, e, any);
}

template <class T>
void MixOf(const RowMix& mix, int64_t cols) {
  static_assert(kMostStreams == 4);
  switch (mix.outputs) {
    case 1:
      return MixOutputs<1, T>(mix, cols);
    case 2:
      return MixOutputs<2, T>(mix, cols);
    case 3:
      return MixOutputs<3, T>(mix, cols);
    case 4:
      return MixOutputs<4, T>(mix, cols);
  }
}

void Mix(const RowMix& mix, int64_t cols) {
  if (mix.sources.dtype == DType::kF32) {
    MixOf<float>(mix, cols);
  } else {
    MixOf<bf16>(mix, cols);
  }
}

template <int kInputs, class T>
void PushTargets(const RowPush& push, int64_t cols) {
  for (int k = 0; k < push.sources.count; ++k) {
    const T* row = Row<T>(push.sources, k);
    const float* weights = push.weights + static_cast<int64_t>(k) * kInputs;
    const float self = push.self_weights != nullptr ? push.self_weights[k] : 0.0f;
    const bool add = push.add[k] != 0;
    float* target = push.target[k];
    ForElements(cols, [&](auto d, int64_t e) HWY_ATTR {
      auto sum = hn::Mul(hn::Set(d, weights[0]), hn::LoadU(d, push.input[0] + e));
      for (int v = 1; v < kInputs; ++v) {
        sum = hn::MulAdd(hn::Set(d, weights[v]), hn::LoadU(d, push.input[v] + e), sum);
      }
      if (self != 0) sum = hn::MulAdd(hn::Set(d, self), LoadF32(d, row + e), sum);
      if (add) sum = hn::Add(hn::LoadU(d, target + e), sum);
      hn::StoreU(sum, d, target + e);
    });
  }
}

template <class T>
void PushOf(const RowPush& push, int64_t cols) {
  switch (push.inputs) {
    case 1:
      return PushTargets<1, T>(push, cols);
    case 2:
      return PushTargets<2, T>(push, cols);
    case 4:
      return PushTargets<4, T>(push, cols);
    case 8:
      return PushTargets<8, T>(push, cols);
  }
}

void Push(const RowPush& push, int64_t cols) {
  if (push.sources.dtype == DType::kF32) {
    PushOf<float>(push, cols);
  } else {
    PushOf<bf16>(push, cols);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace denseformer {

HWY_EXPORT(Dots);
HWY_EXPORT(Squares);
HWY_EXPORT(Mix);
HWY_EXPORT(Push);

void RowDots(const RowSources& sources, int64_t cols, int vectors, const float* const* vector,
             float* dots) {
  DF_DYNAMIC_DISPATCH(Dots)(sources, cols, vectors, vector, dots);
}

void RowSquares(const RowSources& sources, int64_t cols, float* squares) {
  DF_DYNAMIC_DISPATCH(Squares)(sources, cols, squares);
}

void MixRow(const RowMix& mix, int64_t cols) {
  DF_CHECK(mix.outputs >= 1 && mix.outputs <= kMostStreams);
  DF_DYNAMIC_DISPATCH(Mix)(mix, cols);
}

void PushRow(const RowPush& push, int64_t cols) {
  DF_CHECK(push.inputs == 1 || push.inputs == 2 || push.inputs == 4 || push.inputs == 8);
  DF_DYNAMIC_DISPATCH(Push)(push, cols);
}

}  // namespace denseformer
#endif  // HWY_ONCE
