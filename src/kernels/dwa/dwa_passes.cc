#include "kernels/dwa/dwa_passes.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <type_traits>

#include "kernels/simd.h"
#include "tensor/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dwa/dwa_passes.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/vector_order-inl.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Accumulators that the target keeps in registers beside what is loaded.
constexpr int kAccumulators = HWY_TARGET <= HWY_AVX3 ? 24 : 12;
// Vectors of a tile with `sums` sums.
constexpr int TileVectors(int sums) { return kAccumulators / sums >= 4 ? 4 : 2; }

template <class T>
constexpr VectorOrder kTileOrder =
    std::is_same_v<T, bf16>&& HWY_TARGET != HWY_SCALAR ? VectorOrder::kSplit : VectorOrder::kPlain;

// Many streams at once are more than the hardware's prefetcher follows.
constexpr int64_t kPrefetchBytes = 1024;

template <class T>
HWY_INLINE void PrefetchTile(const T* from, int64_t elements) {
  const char* at = reinterpret_cast<const char*>(from) + kPrefetchBytes;
  for (int64_t b = 0; b < elements * static_cast<int64_t>(sizeof(T)); b += 64)
    hwy::Prefetch(at + b);
}

// Adds x, times the weight of each sum, to the sums, but for those that `skipped` has a bit for.
template <int kSums, int V, class D>
HWY_INLINE void AddSource(D d, const hn::Vec<D> (&x)[V], const float* weights, uint8_t skipped,
                          hn::Vec<D> (&sums)[kSums][V]) {
  const auto add = [&](int o) HWY_ATTR {
    const auto weight = hn::Set(d, weights[o]);
    for (int v = 0; v < V; ++v) sums[o][v] = hn::MulAdd(weight, x[v], sums[o][v]);
  };
  // Without a test for each sum where all take part: the tests would take longer than the sums.
  if (HWY_LIKELY(skipped == 0)) {
    for (int o = 0; o < kSums; ++o) add(o);
  } else {
    for (int o = 0; o < kSums; ++o) {
      if ((skipped >> o & 1) == 0) add(o);
    }
  }
}

// Whether the outputs but the first, from element `begin` on, can use non-temporal stores.
bool Aligned(float* const* output, int count, int64_t begin, int64_t lanes) {
  return std::all_of(output + 1, output + count, [&](const float* to) {
    return reinterpret_cast<uintptr_t>(to + begin) % (static_cast<size_t>(lanes) * 4) == 0;
  });
}

template <int kSums, int V, VectorOrder kOrder, class D, class T>
HWY_INLINE void AverageTile(D d, const AveragePass& pass, int64_t e, bool past) {
  hn::Vec<D> x[V], sums[kSums][V];
  for (int o = 0; o < kSums; ++o) {
    for (int v = 0; v < V; ++v) sums[o][v] = hn::Set(d, o == 0 && pass.empty ? 0.0f : -0.0f);
  }
  if (pass.partial != nullptr) LoadVectors<kOrder>(d, pass.partial + e, sums[0]);
  for (int k = 0; k < pass.sources; ++k) {
    const T* from = static_cast<const T*>(pass.source[k]) + e;
    if constexpr (V > 1) PrefetchTile(from, V * static_cast<int64_t>(hn::Lanes(d)));
    LoadVectors<kOrder>(d, from, x);
    AddSource(d, x, pass.weights + k * kMostAverages, pass.skipped[k], sums);
  }
  if (pass.newest != nullptr) {
    LoadVectors<kOrder>(d, pass.newest + e, x);
    const auto weight = hn::Set(d, pass.newest_weight);
    for (int v = 0; v < V; ++v) sums[0][v] = hn::MulAdd(weight, x[v], sums[0][v]);
  }
  StoreVectors<kOrder>(d, sums[0], pass.output[0] + e);
  if (past) {
    for (int o = 1; o < kSums; ++o)
      StoreVectors<kOrder, /*kPast=*/true>(d, sums[o], pass.output[o] + e);
  } else {
    for (int o = 1; o < kSums; ++o) StoreVectors<kOrder>(d, sums[o], pass.output[o] + e);
  }
}

template <int kSums, class T>
void AverageRange(const AveragePass& pass, int64_t begin, int64_t end) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  constexpr int V = TileVectors(kSums);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const bool past = pass.past && Aligned(pass.output, kSums, begin, lanes);
  int64_t e = begin;
  for (; e + V * lanes <= end; e += V * lanes)
    AverageTile<kSums, V, kTileOrder<T>, decltype(d), T>(d, pass, e, past);
  for (; e + lanes <= end; e += lanes)
    AverageTile<kSums, 1, VectorOrder::kPlain, decltype(d), T>(d, pass, e, past);
  for (; e < end; ++e)
    AverageTile<kSums, 1, VectorOrder::kPlain, decltype(d1), T>(d1, pass, e, false);
}

template <class T>
void AverageRangeOf(const AveragePass& pass, int64_t begin, int64_t end) {
  static_assert(kMostAverages == 8);
  switch (pass.outputs) {
    case 1:
      return AverageRange<1, T>(pass, begin, end);
    case 2:
      return AverageRange<2, T>(pass, begin, end);
    case 3:
      return AverageRange<3, T>(pass, begin, end);
    case 4:
      return AverageRange<4, T>(pass, begin, end);
    case 5:
      return AverageRange<5, T>(pass, begin, end);
    case 6:
      return AverageRange<6, T>(pass, begin, end);
    case 7:
      return AverageRange<7, T>(pass, begin, end);
    case 8:
      return AverageRange<8, T>(pass, begin, end);
  }
}

void AveragePassT(const AveragePass& pass, int64_t begin, int64_t end) {
  if (pass.dtype == DType::kF32) {
    AverageRangeOf<float>(pass, begin, end);
  } else {
    AverageRangeOf<bf16>(pass, begin, end);
  }
}

// sum (doubles, one per lane) += products, exactly widened.
template <class D>
HWY_INLINE void AddWide(D d, hn::Vec<D> products, double* sum) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (hn::MaxLanes(D()) > 1) {
    const hn::Half<D> half;
    const hn::Rebind<double, decltype(half)> wide;
    const auto low = hn::PromoteTo(wide, hn::LowerHalf(half, products));
    const auto high = hn::PromoteTo(wide, hn::UpperHalf(half, products));
    double* upper = sum + hn::Lanes(wide);
    hn::Store(hn::Add(hn::Load(wide, sum), low), wide, sum);
    hn::Store(hn::Add(hn::Load(wide, upper), high), wide, upper);
    return;
  }
#endif
  sum[0] += static_cast<double>(hn::GetLane(products));
}

constexpr int kMaxLanes = 16;

// lane_sums [modules, kMostPulls, kMaxLanes].
template <int kSums, int V, class T, class U, class D>
HWY_INLINE void PullTile(D d, const PullPass& pass, int64_t e, double* lane_sums) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN float x[kSums][V * hn::MaxLanes(D())];
  hn::Vec<D> sums[kSums][V];
  for (int t = 0; t < kSums; ++t) {
    for (int v = 0; v < V; ++v) {
      hn::StoreU(LoadF32(d, static_cast<const T*>(pass.x[t]) + e + v * lanes), d, x[t] + v * lanes);
      sums[t][v] = hn::Set(d, t == 0 && pass.empty ? 0.0f : -0.0f);
    }
  }
  if (pass.partial != nullptr) {
    for (int v = 0; v < V; ++v) sums[0][v] = hn::LoadU(d, pass.partial + e + v * lanes);
  }
  for (int k = 0; k < pass.modules; ++k) {
    const U* from = static_cast<const U*>(pass.dy[k]) + e;
    if constexpr (V > 1) PrefetchTile(from, V * lanes);
    hn::Vec<D> dy[V];
    for (int v = 0; v < V; ++v) dy[v] = LoadF32(d, from + v * lanes);
    for (int t = 0; t < kSums; ++t) {
      const PullPair& pair = pass.pairs[k * kMostPulls + t];
      if (pair.sum) {
        const auto weight = hn::Set(d, pair.weight);
        for (int v = 0; v < V; ++v) sums[t][v] = hn::MulAdd(weight, dy[v], sums[t][v]);
      }
      if (pair.dot) {
        auto products = hn::Mul(dy[0], hn::LoadU(d, x[t]));
        for (int v = 1; v < V; ++v) {
          products = hn::MulAdd(dy[v], hn::LoadU(d, x[t] + v * lanes), products);
        }
        AddWide(d, products, lane_sums + (k * kMostPulls + t) * kMaxLanes);
      }
    }
  }
  for (int t = 0; t < kSums; ++t) {
    if (t == 0 && pass.empty && pass.add) continue;
    for (int v = 0; v < V; ++v) {
      float* to = pass.output[t] + e + v * lanes;
      auto sum = sums[t][v];
      if (t == 0 && pass.add) sum = hn::Add(hn::LoadU(d, to), sum);
      hn::StoreU(sum, d, to);
    }
  }
}

template <int kSums, class T, class U>
void PullRange(const PullPass& pass, int64_t begin, int64_t end, double* lane_sums) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  constexpr int V = TileVectors(kSums);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t e = begin;
  for (; e + V * lanes <= end; e += V * lanes) PullTile<kSums, V, T, U>(d, pass, e, lane_sums);
  for (; e + lanes <= end; e += lanes) PullTile<kSums, 1, T, U>(d, pass, e, lane_sums);
  for (; e < end; ++e) PullTile<kSums, 1, T, U>(d1, pass, e, lane_sums);
}

template <class T, class U>
void PullRangeOf(const PullPass& pass, int64_t begin, int64_t end, double* lane_sums) {
  static_assert(kMostPulls == 4);
  switch (pass.targets) {
    case 1:
      return PullRange<1, T, U>(pass, begin, end, lane_sums);
    case 2:
      return PullRange<2, T, U>(pass, begin, end, lane_sums);
    case 3:
      return PullRange<3, T, U>(pass, begin, end, lane_sums);
    case 4:
      return PullRange<4, T, U>(pass, begin, end, lane_sums);
  }
}

void PullPassT(const PullPass& pass, int64_t begin, int64_t end, double* dots) {
  const int64_t pairs = int64_t{pass.modules} * kMostPulls;
  double* lane_sums = static_cast<double*>(ThreadScratch(pairs * kMaxLanes * sizeof(double)));
  std::fill(lane_sums, lane_sums + pairs * kMaxLanes, 0.0);
  if (pass.dtype == DType::kF32) {
    PullRangeOf<float, float>(pass, begin, end, lane_sums);
  } else if (pass.dy_dtype == DType::kF32) {
    PullRangeOf<bf16, float>(pass, begin, end, lane_sums);
  } else {
    PullRangeOf<bf16, bf16>(pass, begin, end, lane_sums);
  }
  for (int64_t pair = 0; pair < pairs; ++pair) {
    double sum = 0;
    for (int lane = 0; lane < kMaxLanes; ++lane) sum += lane_sums[pair * kMaxLanes + lane];
    dots[pair] = sum;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace denseformer {

HWY_EXPORT(AveragePassT);
HWY_EXPORT(PullPassT);

void RunAveragePass(const AveragePass& pass, int64_t begin, int64_t end) {
  DF_DYNAMIC_DISPATCH(AveragePassT)(pass, begin, end);
}

void RunPullPass(const PullPass& pass, int64_t begin, int64_t end, double* dots) {
  DF_DYNAMIC_DISPATCH(PullPassT)(pass, begin, end, dots);
}

}  // namespace denseformer
#endif  // HWY_ONCE
