// The residual connection (residual.h) on a range of elements, for kernels that have it in cache.
#if defined(DENSEFORMER_KERNELS_RESIDUAL_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DENSEFORMER_KERNELS_RESIDUAL_ROW_INL_H_
#undef DENSEFORMER_KERNELS_RESIDUAL_ROW_INL_H_
#else
#define DENSEFORMER_KERNELS_RESIDUAL_ROW_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "kernels/dropout.h"
#include "kernels/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {

// Elements whose dropout mask is held on the stack at a time.
constexpr int64_t kMaskBlock = 512;

// Calls body(begin, end, mask) on blocks of [begin, end); mask[i - begin] is the factor of element
// i, or mask is null where dropout is off.
template <class F>
HWY_INLINE void ForMaskBlocks(const Dropout& dropout, int64_t begin, int64_t end, F&& body) {
  if (!dropout.enabled()) return body(begin, end, static_cast<const float*>(nullptr));
  HWY_ALIGN float mask[kMaskBlock];
  for (int64_t at = begin; at < end; at += kMaskBlock) {
    const int64_t stop = std::min(end, at + kMaskBlock);
    dropout.FillScales(static_cast<uint64_t>(at), stop - at, mask);
    body(at, stop, mask);
  }
}

// y = gain * x + mask * delta for elements [begin, end).
template <class T>
HWY_INLINE void ResidualElements(const float* x, const T* delta, float gain, const Dropout& dropout,
                                 float* y, int64_t begin, int64_t end) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  const auto vgain = hn::Set(d, gain);
  ForMaskBlocks(dropout, begin, end, [&](int64_t at, int64_t stop, const float* mask) HWY_ATTR {
    ForEachVector(d, stop - at, [&](int64_t i, auto lanes) HWY_ATTR {
      auto v = LoadLanes(d, delta + at + i, lanes);
      if (mask != nullptr) v = hn::Mul(v, LoadLanes(d, mask + i, lanes));
      StoreLanes(d, hn::MulAdd(vgain, LoadLanes(d, x + at + i, lanes), v), y + at + i, lanes);
    });
  });
}

// dx = gain * dy (null: nothing to write), ddelta = mask * dy for elements [begin, end).
template <class T>
HWY_INLINE void ResidualGradElements(const float* dy, float gain, const Dropout& dropout, float* dx,
                                     T* ddelta, int64_t begin, int64_t end) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  const auto vgain = hn::Set(d, gain);
  ForMaskBlocks(dropout, begin, end, [&](int64_t at, int64_t stop, const float* mask) HWY_ATTR {
    ForEachVector(d, stop - at, [&](int64_t i, auto lanes) HWY_ATTR {
      const auto g = LoadLanes(d, dy + at + i, lanes);
      if (dx != nullptr) StoreLanes(d, hn::Mul(vgain, g), dx + at + i, lanes);
      const auto v = mask != nullptr ? hn::Mul(g, LoadLanes(d, mask + i, lanes)) : g;
      StoreLanes(d, v, ddelta + at + i, lanes);
    });
  });
}

// The sum of a[i] * b[i]: fp32 within blocks, fp64 over them.
HWY_INLINE double DotElements(const float* a, const float* b, int64_t begin, int64_t end) {
  constexpr int64_t kBlock = 1024;
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  double sum = 0;
  for (int64_t at = begin; at < end; at += kBlock) {
    sum +=
        SumLanes(d, SumVectors(d, std::min(kBlock, end - at), [&](int64_t i, auto lanes) HWY_ATTR {
                   return hn::Mul(LoadLanes(d, a + at + i, lanes), LoadLanes(d, b + at + i, lanes));
                 }));
  }
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#endif  // per target
