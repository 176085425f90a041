// LayerNorm. With xhat = (x - mean) * rstd and g = dout * weight:
//   dx = dresidual + rstd * (g - mean(g) - xhat * mean(g * xhat))
//   dweight += sum over rows of dout * xhat;  dbias += sum over rows of dout
#include "kernels/layernorm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/layernorm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "kernels/simd.h"
#include "kernels/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// The row stays in the first cache, so three passes over it cost little; the variance is taken from
// the differences to the mean, which do not cancel.
template <class Out>
HWY_INLINE void NormRow(const float* HWY_RESTRICT x, const float* weight, const float* bias,
                        int64_t cols, Out* HWY_RESTRICT out, float* mean_out, float* rstd_out) {
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

template <class Out>
void NormRows(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& out,
              const Tensor& mean, const Tensor& rstd, int64_t begin, int64_t end) {
  const int64_t cols = x.cols();
  for (int64_t n = begin; n < end; ++n) {
    NormRow(x.f32() + n * cols, weight.f32(), bias.empty() ? nullptr : bias.f32(), cols,
            out.As<Out>() + n * cols, mean.empty() ? nullptr : mean.f32() + n,
            rstd.empty() ? nullptr : rstd.f32() + n);
  }
}

void NormForward(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& out,
                 const Tensor& mean, const Tensor& rstd, int64_t begin, int64_t end) {
  if (out.dtype() == DType::kF32) {
    NormRows<float>(x, weight, bias, out, mean, rstd, begin, end);
  } else {
    NormRows<bf16>(x, weight, bias, out, mean, rstd, begin, end);
  }
}

// One row of the backward pass; adds to dweight and dbias (of a partition; dbias may be null).
template <class Out>
HWY_INLINE void GradRow(const Out* dout, const float* x, const float* weight, float mean,
                        float rstd, int64_t cols, const float* dresidual, float* dx,
                        float* HWY_RESTRICT dweight, float* HWY_RESTRICT dbias) {
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

template <class Out>
void GradRows(const Tensor& dout, const Tensor& x, const Tensor& weight, const Tensor& mean,
              const Tensor& rstd, const LayerNormGradients& grads, int64_t partition, int64_t begin,
              int64_t end) {
  const int64_t cols = x.cols();
  float* dweight = grads.scratch.f32() + partition * 2 * cols;
  float* dbias = grads.dbias.empty() ? nullptr : dweight + cols;
  std::fill_n(dweight, (dbias != nullptr ? 2 : 1) * cols, 0.0f);
  for (int64_t n = begin; n < end; ++n) {
    const int64_t at = n * cols;
    GradRow(dout.As<Out>() + at, x.f32() + at, weight.f32(), mean.f32()[n], rstd.f32()[n], cols,
            grads.dresidual.empty() ? nullptr : grads.dresidual.f32() + at, grads.dx.f32() + at,
            dweight, dbias);
  }
}

void NormBackward(const Tensor& dout, const Tensor& x, const Tensor& weight, const Tensor& mean,
                  const Tensor& rstd, const LayerNormGradients& grads, int64_t partition,
                  int64_t begin, int64_t end) {
  if (dout.dtype() == DType::kF32) {
    GradRows<float>(dout, x, weight, mean, rstd, grads, partition, begin, end);
  } else {
    GradRows<bf16>(dout, x, weight, mean, rstd, grads, partition, begin, end);
  }
}

// to[i] += the sum of the partitions' values, for i in [begin, end).
void AddPartitions(const float* scratch, int64_t stride, int64_t partitions, int64_t begin,
                   int64_t end, float* HWY_RESTRICT to) {
  const hn::ScalableTag<float> d;
  ForEachVector(d, end - begin, [&](int64_t i, auto lanes) HWY_ATTR {
    auto sum = LoadLanes(d, scratch + begin + i, lanes);
    for (int64_t p = 1; p < partitions; ++p) {
      sum = hn::Add(sum, LoadLanes(d, scratch + p * stride + begin + i, lanes));
    }
    float* at = to + begin + i;
    StoreLanes(d, hn::Add(LoadLanes(d, at, lanes), sum), at, lanes);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace denseformer {
namespace {

HWY_EXPORT(NormForward);
HWY_EXPORT(NormBackward);
HWY_EXPORT(AddPartitions);

constexpr int64_t kMostPartitions = 64;
// A partition costs a pass over its sums; it should have a few rows of work for that.
constexpr int64_t kRowsOfPartition = 8;

}  // namespace

void LayerNormForward(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& out,
                      const Tensor& mean, const Tensor& rstd) {
  DF_CHECK(out.count() == x.count() && weight.count() == x.cols());
  DF_CHECK(bias.empty() || bias.count() == x.cols());
  DF_CHECK(mean.empty() || mean.count() == x.rows());
  DF_CHECK(rstd.empty() || rstd.count() == x.rows());
  ParallelFor(x.rows(), /*grain=*/8, [&](int64_t begin, int64_t end, int) {
    DF_DYNAMIC_DISPATCH(NormForward)(x, weight, bias, out, mean, rstd, begin, end);
  });
}

int64_t LayerNormScratch(int64_t cols) { return kMostPartitions * 2 * cols; }

void LayerNormBackward(const Tensor& dout, const Tensor& x, const Tensor& weight,
                       const Tensor& mean, const Tensor& rstd,
                       const LayerNormGradients& gradients) {
  const int64_t rows = x.rows(), cols = x.cols();
  DF_CHECK(dout.count() == x.count() && weight.count() == cols);
  DF_CHECK(mean.count() == rows && rstd.count() == rows);
  DF_CHECK(gradients.dx.count() == x.count() && gradients.dweight.count() == cols);
  DF_CHECK(gradients.dresidual.empty() || gradients.dresidual.count() == x.count());
  DF_CHECK(gradients.dbias.empty() || gradients.dbias.count() == cols);
  DF_CHECK(gradients.scratch.count() >= LayerNormScratch(cols));
  if (rows == 0) return;
  const int64_t partitions =
      std::clamp<int64_t>(rows / kRowsOfPartition, int64_t{1}, kMostPartitions);
  ParallelFor(partitions, /*grain=*/1, [&](int64_t begin, int64_t end, int) {
    for (int64_t p = begin; p < end; ++p) {
      DF_DYNAMIC_DISPATCH(NormBackward)
      (dout, x, weight, mean, rstd, gradients, p, rows * p / partitions,
       rows * (p + 1) / partitions);
    }
  });
  const float* scratch = gradients.scratch.f32();
  ParallelFor(cols, /*grain=*/256, [&](int64_t begin, int64_t end, int) {
    DF_DYNAMIC_DISPATCH(AddPartitions)
    (scratch, 2 * cols, partitions, begin, end, gradients.dweight.f32());
    if (gradients.dbias.empty()) return;
    DF_DYNAMIC_DISPATCH(AddPartitions)
    (scratch + cols, 2 * cols, partitions, begin, end, gradients.dbias.f32());
  });
}

}  // namespace denseformer
#endif  // HWY_ONCE
