// One row of attention: its dot products and its softmax.
#if defined(DENSEFORMER_KERNELS_ATTENTION_ATTENTION_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DENSEFORMER_KERNELS_ATTENTION_ATTENTION_ROW_INL_H_
#undef DENSEFORMER_KERNELS_ATTENTION_ATTENTION_ROW_INL_H_
#else
#define DENSEFORMER_KERNELS_ATTENTION_ATTENTION_ROW_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "kernels/exp-inl.h"
#include "kernels/load-inl.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {

constexpr size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

template <class E>
float Dot(const E* a, const float* b, size_t count) {
  namespace hn = hwy::HWY_NAMESPACE;
  const TileTag d;
  TileVec sum = hn::Zero(d);
  size_t i = 0;
  for (; i + kTileLanes <= count; i += kTileLanes) {
    sum = hn::MulAdd(LoadF32(d, a + i), hn::LoadU(d, b + i), sum);
  }
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < count; ++i) total += static_cast<float>(a[i]) * b[i];
  return total;
}

// Turns a row of `count` scores into exp(s - max), 0 up to `padded`; gives the largest and the sum.
// The row must have room for whole vectors.
inline void SoftmaxRow(float* row, size_t count, size_t padded, float* max, float* sum) {
  namespace hn = hwy::HWY_NAMESPACE;
  const TileTag d;
  const size_t whole = RoundUp(count, kTileLanes);
  std::fill(row + count, row + whole, -HUGE_VALF);
  TileVec most = hn::Set(d, -HUGE_VALF);
  for (size_t j = 0; j < whole; j += kTileLanes) most = hn::Max(hn::LoadU(d, row + j), most);
  most = hn::MaxOfLanes(d, most);
  TileVec total = hn::Zero(d);
  for (size_t j = 0; j < whole; j += kTileLanes) {
    const TileVec p = Exp(d, hn::Sub(hn::LoadU(d, row + j), most));
    total = hn::Add(total, p);
    hn::StoreU(p, d, row + j);
  }
  std::fill(row + count, row + std::max(whole, padded), 0.0f);
  *max = hn::GetLane(most);
  *sum = hn::GetLane(hn::SumOfLanes(d, total));
}

}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#endif  // DENSEFORMER_KERNELS_ATTENTION_ATTENTION_ROW_INL_H_
