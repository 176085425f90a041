// GELU and its gradient, element by element (erf-inl.h).
#include "kernels/gelu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gelu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <type_traits>

#include "base/parallel.h"
#include "kernels/erf-inl.h"
#include "kernels/simd.h"
#include "kernels/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
void Forward(const T* x, T* y, int64_t n) {
  const hn::ScalableTag<float> d;
  ForEachVector(d, n, [&](int64_t i, auto lanes) HWY_ATTR {
    const auto v = LoadLanes(d, x + i, lanes);
    StoreLanes(d, Gelu<std::is_same_v<T, float>>(d, v), y + i, lanes);
  });
}

template <class T>
void Backward(const T* x, const T* dy, T* dx, int64_t n) {
  const hn::ScalableTag<float> d;
  ForEachVector(d, n, [&](int64_t i, auto lanes) HWY_ATTR {
    const auto v = LoadLanes(d, x + i, lanes);
    const auto slope = GeluSlope<std::is_same_v<T, float>>(d, v);
    StoreLanes(d, hn::Mul(LoadLanes(d, dy + i, lanes), slope), dx + i, lanes);
  });
}

void GeluForwardRange(const Tensor& x, const Tensor& y, int64_t begin, int64_t end) {
  if (x.dtype() == DType::kF32) {
    Forward(x.f32() + begin, y.f32() + begin, end - begin);
  } else {
    Forward(x.As<bf16>() + begin, y.As<bf16>() + begin, end - begin);
  }
}

void GeluBackwardRange(const Tensor& x, const Tensor& dy, const Tensor& dx, int64_t begin,
                       int64_t end) {
  if (x.dtype() == DType::kF32) {
    Backward(x.f32() + begin, dy.f32() + begin, dx.f32() + begin, end - begin);
  } else {
    Backward(x.As<bf16>() + begin, dy.As<bf16>() + begin, dx.As<bf16>() + begin, end - begin);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace denseformer {
namespace {

HWY_EXPORT(GeluForwardRange);
HWY_EXPORT(GeluBackwardRange);

constexpr int64_t kGrain = 4096;

}  // namespace

void GeluForward(const Tensor& x, const Tensor& y) {
  DF_CHECK(x.count() == y.count() && x.dtype() == y.dtype());
  ParallelFor(x.count(), kGrain, [&](int64_t begin, int64_t end, int) {
    DF_DYNAMIC_DISPATCH(GeluForwardRange)(x, y, begin, end);
  });
}

void GeluBackward(const Tensor& x, const Tensor& dy, const Tensor& dx) {
  DF_CHECK(x.count() == dy.count() && x.count() == dx.count());
  DF_CHECK(x.dtype() == dy.dtype() && x.dtype() == dx.dtype());
  ParallelFor(x.count(), kGrain, [&](int64_t begin, int64_t end, int) {
    DF_DYNAMIC_DISPATCH(GeluBackwardRange)(x, dy, dx, begin, end);
  });
}

}  // namespace denseformer
#endif  // HWY_ONCE
