#include "kernels/dwa_passes.h"

#include <algorithm>

#include "kernels/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dwa_passes.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// One vector; `first` starts the sum instead of adding to it, so that -0 stays -0.
template <class D, class T>
HWY_INLINE hn::Vec<D> Accumulate(D d, const T* data, float weight, bool first, hn::Vec<D> sum) {
  const auto value = LoadF32(d, data);
  const auto alpha = hn::Set(d, weight);
  return first ? hn::Mul(alpha, value) : hn::MulAdd(alpha, value, sum);
}

template <class D>
HWY_INLINE hn::Vec<D> Accumulate(D d, const AverageTerm& term, int64_t e, bool first,
                                 hn::Vec<D> sum) {
  return term.dtype == DType::kF32
             ? Accumulate(d, static_cast<const float*>(term.data) + e, term.weight, first, sum)
             : Accumulate(d, static_cast<const bf16*>(term.data) + e, term.weight, first, sum);
}

template <class D>
HWY_INLINE void AverageVector(D d, std::span<const AverageTerm> terms, int64_t e, float* y) {
  auto sum = hn::Zero(d);
  for (size_t k = 0; k < terms.size(); ++k) sum = Accumulate(d, terms[k], e, k == 0, sum);
  hn::StoreU(sum, d, y + e);
}

void AverageRangeT(std::span<const AverageTerm> terms, int64_t begin, int64_t end, float* y) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t e = begin;
  for (; e + lanes <= end; e += lanes) AverageVector(d, terms, e, y);
  for (; e < end; ++e) AverageVector(d1, terms, e, y);
}

template <class D, class T>
HWY_INLINE void PullVector(D d, std::span<const AverageTerm> terms, const T* x, int64_t e, bool add,
                           float* dx, double* dots) {
  const auto value = LoadF32(d, x + e);
  auto sum = hn::Zero(d);
  bool first = true;
  for (size_t k = 0; k < terms.size(); ++k) {
    const float* dy = static_cast<const float*>(terms[k].data);
    if (terms[k].weight != 0) {
      sum = Accumulate(d, dy + e, terms[k].weight, first, sum);
      first = false;
    }
    dots[k] += hn::GetLane(hn::SumOfLanes(d, hn::Mul(value, hn::LoadU(d, dy + e))));
  }
  if (!add) {
    hn::StoreU(sum, d, dx + e);
  } else if (!first) {
    hn::StoreU(hn::Add(hn::LoadU(d, dx + e), sum), d, dx + e);
  }
}

template <class T>
void PullRangeOf(std::span<const AverageTerm> terms, const T* x, int64_t begin, int64_t end,
                 bool add, float* dx, double* dots) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  std::fill(dots, dots + terms.size(), 0.0);
  int64_t e = begin;
  for (; e + lanes <= end; e += lanes) PullVector(d, terms, x, e, add, dx, dots);
  for (; e < end; ++e) PullVector(d1, terms, x, e, add, dx, dots);
}

void PullRangeT(std::span<const AverageTerm> terms, const Tensor& x, int64_t begin, int64_t end,
                bool add, float* dx, double* dots) {
  if (x.dtype() == DType::kF32) {
    PullRangeOf(terms, x.As<const float>(), begin, end, add, dx, dots);
  } else {
    PullRangeOf(terms, x.As<const bf16>(), begin, end, add, dx, dots);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace denseformer {

HWY_EXPORT(AverageRangeT);
HWY_EXPORT(PullRangeT);

void AverageRange(std::span<const AverageTerm> terms, int64_t begin, int64_t end, float* y) {
  DF_DYNAMIC_DISPATCH(AverageRangeT)(terms, begin, end, y);
}

void PullRange(std::span<const AverageTerm> terms, const Tensor& x, int64_t begin, int64_t end,
               bool add, float* dx, double* dots) {
  DF_DYNAMIC_DISPATCH(PullRangeT)(terms, x, begin, end, add, dx, dots);
}

}  // namespace denseformer
#endif  // HWY_ONCE
