// LayerNorm of one row and its gradient (layernorm.h), for kernels that have the row in cache.
//
// With xhat = (x - mean) * rstd and g = dout * weight:
//   dx = dresidual + rstd * (g - mean(g) - xhat * mean(g * xhat))
//   dweight += dout * xhat;  dbias += dout
#if defined(DENSEFORMER_KERNELS_LAYERNORM_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DENSEFORMER_KERNELS_LAYERNORM_ROW_INL_H_
#undef DENSEFORMER_KERNELS_LAYERNORM_ROW_INL_H_
#else
#define DENSEFORMER_KERNELS_LAYERNORM_ROW_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>

#include "kernels/layernorm.h"
#include "kernels/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {

// The row stays in the first cache, so three passes over it cost little; the variance is taken from
// the differences to the mean, which do not cancel.
template <class Out>
HWY_INLINE void LayerNormRow(const float* HWY_RESTRICT x, const float* weight, const float* bias,
                             int64_t cols, Out* HWY_RESTRICT out, float* mean_out,
                             float* rstd_out) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  const float count = static_cast<float>(cols);
  const float mean = SumLanes(d, SumVectors(d, cols,
                                            [&](int64_t i, auto lanes)
                                                HWY_ATTR { return LoadLanes(d, x + i, lanes); })) /
                     count;
  const auto vmean = hn::Set(d, mean);
  const float variance = SumLanes(d, SumVectors(d, cols,
                                                [&](int64_t i, auto lanes) HWY_ATTR {
                                                  const auto v =
                                                      hn::Sub(LoadLanes(d, x + i, lanes), vmean);
                                                  return hn::Mul(v, v);
                                                })) /
                         count;
  const float rstd = 1.0f / std::sqrt(variance + kLayerNormEpsilon);
  const auto vrstd = hn::Set(d, rstd);
  ForEachVector(d, cols, [&](int64_t i, auto lanes) HWY_ATTR {
    const auto xhat = hn::Mul(hn::Sub(LoadLanes(d, x + i, lanes), vmean), vrstd);
    const auto w = LoadLanes(d, weight + i, lanes);
    const auto y =
        bias != nullptr ? hn::MulAdd(xhat, w, LoadLanes(d, bias + i, lanes)) : hn::Mul(xhat, w);
    StoreLanes(d, y, out + i, lanes);
  });
  if (mean_out != nullptr) *mean_out = mean;
  if (rstd_out != nullptr) *rstd_out = rstd;
}

// One row of the backward pass; adds to dweight and dbias (of a partition; dbias may be null).
template <class Out>
HWY_INLINE void LayerNormGradRow(const Out* dout, const float* x, const float* weight, float mean,
                                 float rstd, int64_t cols, const float* dresidual, float* dx,
                                 float* HWY_RESTRICT dweight, float* HWY_RESTRICT dbias) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  const auto vmean = hn::Set(d, mean), vrstd = hn::Set(d, rstd);
  auto dots = hn::Zero(d);
  const auto sums = SumVectors(d, cols, [&](int64_t i, auto lanes) HWY_ATTR {
    const auto dy = LoadLanes(d, dout + i, lanes);
    const auto xhat = hn::Mul(hn::Sub(LoadLanes(d, x + i, lanes), vmean), vrstd);
    const auto dw = hn::Mul(dy, xhat);
    StoreLanes(d, hn::Add(LoadLanes(d, dweight + i, lanes), dw), dweight + i, lanes);
    if (dbias != nullptr) {
      StoreLanes(d, hn::Add(LoadLanes(d, dbias + i, lanes), dy), dbias + i, lanes);
    }
    const auto w = LoadLanes(d, weight + i, lanes);
    dots = hn::MulAdd(dw, w, dots);
    return hn::Mul(dy, w);
  });
  const float scale = rstd / static_cast<float>(cols);
  const auto sum = hn::Set(d, SumLanes(d, sums) * scale);
  const auto dot = hn::Set(d, SumLanes(d, dots) * scale);
  ForEachVector(d, cols, [&](int64_t i, auto lanes) HWY_ATTR {
    const auto xhat = hn::Mul(hn::Sub(LoadLanes(d, x + i, lanes), vmean), vrstd);
    const auto g = hn::Mul(LoadLanes(d, dout + i, lanes), LoadLanes(d, weight + i, lanes));
    auto grad = hn::Sub(hn::Mul(g, vrstd), hn::MulAdd(xhat, dot, sum));
    if (dresidual != nullptr) grad = hn::Add(grad, LoadLanes(d, dresidual + i, lanes));
    StoreLanes(d, grad, dx + i, lanes);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#endif  // per target
