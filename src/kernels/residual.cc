// The residual connection and its gradients: dx = gain * dy, ddelta = mask * dy,
// dgain += sum of dy * x.
#include "kernels/residual.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/residual.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "base/parallel.h"
#include "kernels/simd.h"
#include "kernels/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

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

template <class T>
void Forward(const float* x, const T* delta, float gain, const Dropout& dropout, float* y,
             int64_t begin, int64_t end) {
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

void ResidualForwardRange(const Tensor& x, const Tensor& delta, float gain, const Dropout& dropout,
                          const Tensor& y, int64_t begin, int64_t end) {
  if (delta.dtype() == DType::kF32) {
    Forward(x.f32(), delta.f32(), gain, dropout, y.f32(), begin, end);
  } else {
    Forward(x.f32(), delta.As<bf16>(), gain, dropout, y.f32(), begin, end);
  }
}

// dx may be null (nothing to write).
template <class T>
void Backward(const float* dy, float gain, const Dropout& dropout, float* dx, T* ddelta,
              int64_t begin, int64_t end) {
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

void ResidualBackwardRange(const Tensor& dy, float gain, const Dropout& dropout, float* dx,
                           const Tensor& ddelta, int64_t begin, int64_t end) {
  if (ddelta.dtype() == DType::kF32) {
    Backward(dy.f32(), gain, dropout, dx, ddelta.f32(), begin, end);
  } else {
    Backward(dy.f32(), gain, dropout, dx, ddelta.As<bf16>(), begin, end);
  }
}

// The sum of a[i] * b[i]: fp32 within blocks, fp64 over them.
float DotRange(const float* a, const float* b, int64_t begin, int64_t end) {
  constexpr int64_t kBlock = 1024;
  const hn::ScalableTag<float> d;
  double sum = 0;
  for (int64_t at = begin; at < end; at += kBlock) {
    sum +=
        SumLanes(d, SumVectors(d, std::min(kBlock, end - at), [&](int64_t i, auto lanes) HWY_ATTR {
                   return hn::Mul(LoadLanes(d, a + at + i, lanes), LoadLanes(d, b + at + i, lanes));
                 }));
  }
  return static_cast<float>(sum);
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
