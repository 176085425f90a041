// The normal distribution for vectors of fp32: Phi(x) = (1 + erf(x / sqrt 2)) / 2 and its density
// phi(x) = exp(-x^2 / 2) / sqrt(2 pi), for every SIMD target.
//
//   Phi(-t) = 2^-h(t) for t >= 0, Phi(t) = 1 - Phi(-t); h by a polynomial of degree 10
//
// which needs neither a second branch for small x nor a division, and keeps Phi(x) positive where
// 1 + erf would cancel. Errors: Phi 1e-7 (absolute, and relative down to x = -2; 1e-5 at x = -5),
// phi 1e-7. The polynomial has the least greatest error on [0, 8] weighted with sqrt(Phi(-t)), and
// grows from there on, so that Phi goes to 0. NaN gives NaN.
#if defined(DENSEFORMER_KERNELS_ERF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DENSEFORMER_KERNELS_ERF_INL_H_
#undef DENSEFORMER_KERNELS_ERF_INL_H_
#else
#define DENSEFORMER_KERNELS_ERF_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {

// 2^-x for x >= 0; 0 where that is below the least normal number.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V PowerOfHalf(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  // Taken from 1.5 * 2^23, x leaves round(-x) in the low bits of the difference.
  const V magic = hn::Set(d, 12582912.0f);
  const V shifted = hn::Sub(magic, x);
  const V r = hn::Sub(hn::Sub(magic, shifted), x);  // in [-1/2, 1/2], exact
  V p = hn::Set(d, 1.53458087e-4f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.33999312e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 9.61848898e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.55032878e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 2.40226469e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 6.93147206e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  const auto n = hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, magic));
  const V scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
  return hn::IfThenZeroElse(hn::Gt(x, hn::Set(d, 125.0f)), hn::Mul(p, scale));
}

template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V NormalCdf(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V t = hn::Abs(x);
  V h = hn::Set(d, 3.041532135e-8f);
  h = hn::MulAdd(h, t, hn::Set(d, -8.874602020e-7f));
  h = hn::MulAdd(h, t, hn::Set(d, 1.113157029e-5f));
  h = hn::MulAdd(h, t, hn::Set(d, -7.653485454e-5f));
  h = hn::MulAdd(h, t, hn::Set(d, 2.768926454e-4f));
  h = hn::MulAdd(h, t, hn::Set(d, 1.172761140e-5f));
  h = hn::MulAdd(h, t, hn::Set(d, -6.967743241e-3f));
  h = hn::MulAdd(h, t, hn::Set(d, 5.245907055e-2f));
  h = hn::MulAdd(h, t, hn::Set(d, 4.592139983e-1f));
  h = hn::MulAdd(h, t, hn::Set(d, 1.151105106f));
  h = hn::MulAdd(h, t, hn::Set(d, 1.0f));
  const V lower = PowerOfHalf(d, h);
  return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Sub(hn::Set(d, 1.0f), lower), lower);
}

template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V NormalPdf(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V half_bits = hn::Mul(hn::Mul(x, x), hn::Set(d, 0.721347520f));  // x^2 / 2 / ln 2
  return hn::Mul(PowerOfHalf(d, half_bits), hn::Set(d, 0.398942280f));
}

}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#endif  // per target
