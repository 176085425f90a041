#include "kernels/rmsnorm.h"

#include <cmath>

#include "base/parallel.h"
#include "kernels/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rmsnorm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// <a, b> in fp32.
template <class T>
HWY_INLINE float Dot(const T* a, const T* b, int64_t cols) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sums = hn::Zero(d);
  int64_t e = 0;
  for (; e + lanes <= cols; e += lanes) {
    sums = hn::MulAdd(LoadF32(d, a + e), LoadF32(d, b + e), sums);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; e < cols; ++e) sum += static_cast<float>(a[e]) * static_cast<float>(b[e]);
  return sum;
}

template <class Out>
void NormRows(const Tensor& x, const Tensor& out, const Tensor& rstd, int64_t begin, int64_t end) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const int64_t cols = x.cols(), lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t n = begin; n < end; ++n) {
    const float* from = x.f32() + n * cols;
    Out* to = out.As<Out>() + n * cols;
    const float mean = Dot(from, from, cols) / static_cast<float>(cols);
    const float scale = 1.0f / std::sqrt(mean + kRmsNormEpsilon);
    rstd.f32()[n] = scale;
    int64_t e = 0;
    for (; e + lanes <= cols; e += lanes) {
      StoreF32(d, hn::Mul(hn::LoadU(d, from + e), hn::Set(d, scale)), to + e);
    }
    for (; e < cols; ++e) {
      StoreF32(d1, hn::Mul(hn::LoadU(d1, from + e), hn::Set(d1, scale)), to + e);
    }
  }
}

void Forward(const Tensor& x, const Tensor& out, const Tensor& rstd, int64_t begin, int64_t end) {
  if (out.dtype() == DType::kF32) {
    NormRows<float>(x, out, rstd, begin, end);
  } else {
    NormRows<bf16>(x, out, rstd, begin, end);
  }
}

template <class Out>
void GradRows(const Tensor& dout, const Tensor& out, const Tensor& rstd, const Tensor& dx,
              int64_t begin, int64_t end) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const int64_t cols = dx.cols(), lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t n = begin; n < end; ++n) {
    const Out* g = dout.As<Out>() + n * cols;
    const Out* y = out.As<Out>() + n * cols;
    float* to = dx.f32() + n * cols;
    const float scale = rstd.f32()[n];
    const float along = -scale * Dot(g, y, cols) / static_cast<float>(cols);
    const auto add = [&](auto tag, int64_t e) HWY_ATTR {
      auto sum = hn::MulAdd(hn::Set(tag, scale), LoadF32(tag, g + e), hn::LoadU(tag, to + e));
      sum = hn::MulAdd(hn::Set(tag, along), LoadF32(tag, y + e), sum);
      hn::StoreU(sum, tag, to + e);
    };
    int64_t e = 0;
    for (; e + lanes <= cols; e += lanes) add(d, e);
    for (; e < cols; ++e) add(d1, e);
  }
}

void Backward(const Tensor& dout, const Tensor& out, const Tensor& rstd, const Tensor& dx,
              int64_t begin, int64_t end) {
  if (out.dtype() == DType::kF32) {
    GradRows<float>(dout, out, rstd, dx, begin, end);
  } else {
    GradRows<bf16>(dout, out, rstd, dx, begin, end);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace denseformer {

HWY_EXPORT(Forward);
HWY_EXPORT(Backward);

void RmsNormForward(const Tensor& x, const Tensor& out, const Tensor& rstd) {
  ParallelFor(x.rows(), /*grain=*/16, [&](int64_t begin, int64_t end, int) {
    DF_DYNAMIC_DISPATCH(Forward)(x, out, rstd, begin, end);
  });
}

void RmsNormBackward(const Tensor& dout, const Tensor& out, const Tensor& rstd, const Tensor& dx) {
  ParallelFor(dx.rows(), /*grain=*/16, [&](int64_t begin, int64_t end, int) {
    DF_DYNAMIC_DISPATCH(Backward)(dout, out, rstd, dx, begin, end);
  });
}

}  // namespace denseformer
#endif  // HWY_ONCE
