// GELU and its derivative for vectors of fp32, for every SIMD target: x Phi(x) and
// Phi(x) + x phi(x), where Phi(x) = (1 + erf(x / sqrt 2)) / 2 and phi = Phi'.
//
// With t = |x| everything comes from the lower tail Phi(-t), so nothing cancels as 1 + erf would:
//   x Phi(x)          = max(x, 0) - t Phi(-t)        Phi(-t) = 2^-h(t)
//   Phi(x) + x phi(x) = q(t) for x < 0, 1 - q(t) else, q(t) = Phi(-t) - t phi(t) = exp(-t^2/2) r(t)
// h and r are smooth, so one polynomial serves all t. Each has the least greatest error on its
// range (h on [0, 8] weighted with sqrt(Phi(-t)), r on [0, 6] with exp(-3 t^2 / 8)); beyond it the
// result is 0 or x to rounding. NaN gives NaN.
//
// Precise: errors of 1e-7 (of Phi, also relative down to x = -2; of the derivative). Otherwise 3e-6
// and 1e-5, far below the rounding to bf16, in fewer terms.
#if defined(DENSEFORMER_KERNELS_ERF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DENSEFORMER_KERNELS_ERF_INL_H_
#undef DENSEFORMER_KERNELS_ERF_INL_H_
#else
#define DENSEFORMER_KERNELS_ERF_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/exp2-inl.h"
#include "kernels/gelu_fast.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {

// |x|, up to a bound beyond which Phi(-t) is 0 to any rounding. Min would lose a NaN on some
// targets.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V BoundedAbs(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V t = hn::Abs(x), bound = hn::Set(d, gelu_fast::kBound);
  return hn::IfThenElse(hn::Gt(t, bound), bound, t);
}

template <bool kPrecise, class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Gelu(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V t = BoundedAbs(d, x);
  V h;
  if constexpr (kPrecise) {
    h = Polynomial(d, t, 3.04153213e-8f, -8.87460202e-7f, 1.11315703e-5f, -7.65348545e-5f,
                   2.76892645e-4f, 1.17276114e-5f, -6.96774324e-3f, 5.24590705e-2f, 4.59213998e-1f,
                   1.15110511f, 1.0f);
    h = hn::Min(hn::Set(d, 125.0f), h);
  } else {
    constexpr const float(&c)[7] = gelu_fast::kTail;
    h = Polynomial(d, t, c[0], c[1], c[2], c[3], c[4], c[5], c[6]);
  }
  const V tail = hn::Mul(t, PowerOfHalf<kPrecise>(d, h));
  return hn::Sub(hn::Max(hn::Zero(d), x), tail);
}

template <bool kPrecise, class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V GeluSlope(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V t = BoundedAbs(d, x);
  // exp(-t^2 / 2) = 2^-(t^2 / (2 ln 2)).
  const V gauss = PowerOfHalf<kPrecise>(d, hn::Mul(hn::Mul(t, t), hn::Set(d, 0.721347520f)));
  V r;
  if constexpr (kPrecise) {
    r = Polynomial(d, t, -1.79990136e-7f, 4.97307372e-6f, -6.13755576e-5f, 4.52771044e-4f,
                   -2.27026618e-3f, 8.42336665e-3f, -2.48093587e-2f, 6.14626375e-2f,
                   -1.32622395e-1f, 2.49935965e-1f, -7.97880089e-1f, 4.99999948e-1f);
  } else {
    r = Polynomial(d, t, -1.17335329e-4f, 1.80977926e-3f, -1.20004088e-2f, 4.64652537e-2f,
                   -1.22723202e-1f, 2.46690317e-1f, -7.97475335e-1f, 4.99991706e-1f);
  }
  const V q = hn::Mul(gauss, r);
  return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Sub(hn::Set(d, 1.0f), q), q);
}

}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#endif  // per target
