// The residual connection and its gradients: dx = gain * dy, ddelta = mask * dy,
// dgain += sum of dy * x.
#include "kernels/residual.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/residual.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "base/parallel.h"
#include "kernels/residual_row-inl.h"
#include "kernels/simd.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {

void ResidualForwardRange(const Tensor& x, const Tensor& delta, float gain, const Dropout& dropout,
                          const Tensor& y, int64_t begin, int64_t end) {
  if (delta.dtype() == DType::kF32) {
    ResidualElements(x.f32(), delta.f32(), gain, dropout, y.f32(), begin, end);
  } else {
    ResidualElements(x.f32(), delta.As<bf16>(), gain, dropout, y.f32(), begin, end);
  }
}

void ResidualBackwardRange(const Tensor& dy, float gain, const Dropout& dropout, float* dx,
                           const Tensor& ddelta, int64_t begin, int64_t end) {
  if (ddelta.dtype() == DType::kF32) {
    ResidualGradElements(dy.f32(), gain, dropout, dx, ddelta.f32(), begin, end);
  } else {
    ResidualGradElements(dy.f32(), gain, dropout, dx, ddelta.As<bf16>(), begin, end);
  }
}

float DotRange(const float* a, const float* b, int64_t begin, int64_t end) {
  return static_cast<float>(DotElements(a, b, begin, end));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace denseformer {
namespace {

HWY_EXPORT(ResidualForwardRange);
HWY_EXPORT(ResidualBackwardRange);
HWY_EXPORT(DotRange);

constexpr int64_t kGrain = 4096;

float GainValue(const Tensor& gain) { return gain.empty() ? 1.0f : gain.f32()[0]; }

// dgain += <dy, x>, over partitions that depend on the count alone.
void AddGainGradient(const Tensor& dy, const Tensor& x, const ResidualGradients& gradients) {
  const int64_t count = dy.count();
  const int64_t partitions = std::clamp<int64_t>(count / kGrain, int64_t{1}, kResidualScratch);
  float* partial = gradients.scratch.f32();
  ParallelFor(partitions, /*grain=*/1, [&](int64_t begin, int64_t end, int) {
    for (int64_t p = begin; p < end; ++p) {
      partial[p] = DF_DYNAMIC_DISPATCH(DotRange)(dy.f32(), x.f32(), count * p / partitions,
                                                 count * (p + 1) / partitions);
    }
  });
  double sum = 0;
  for (int64_t p = 0; p < partitions; ++p) sum += partial[p];
  gradients.dgain.f32()[0] += static_cast<float>(sum);
}

}  // namespace

void ResidualForward(const Tensor& x, const Tensor& delta, const Tensor& gain,
                     const Dropout& dropout, const Tensor& y) {
  DF_CHECK(x.count() == delta.count() && x.count() == y.count());
  DF_CHECK(gain.empty() || gain.count() == 1);
  ParallelFor(x.count(), kGrain, [&](int64_t begin, int64_t end, int) {
    DF_DYNAMIC_DISPATCH(ResidualForwardRange)
    (x, delta, GainValue(gain), dropout, y, begin, end);
  });
}

void ResidualBackward(const Tensor& dy, const Tensor& x, const Tensor& gain, const Dropout& dropout,
                      const ResidualGradients& gradients) {
  DF_CHECK(gradients.dx.count() == dy.count() && gradients.ddelta.count() == dy.count());
  DF_CHECK(gain.empty() || gain.count() == 1);
  if (!gradients.dgain.empty()) {
    DF_CHECK(x.count() == dy.count() && gradients.scratch.count() >= kResidualScratch);
    AddGainGradient(dy, x, gradients);
  }
  // With no gain and dx in the place of dy it is there already.
  float* dx = gradients.dx.f32();
  if (gain.empty() && dx == dy.f32()) dx = nullptr;
  ParallelFor(dy.count(), kGrain, [&](int64_t begin, int64_t end, int) {
    DF_DYNAMIC_DISPATCH(ResidualBackwardRange)
    (dy, GainValue(gain), dropout, dx, gradients.ddelta, begin, end);
  });
}

}  // namespace denseformer
#endif  // HWY_ONCE
