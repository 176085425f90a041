// 2^-x and polynomials for vectors of fp32, for every SIMD target: the parts of erf-inl.h and of
// exponentials whose argument is known not to be positive.
#if defined(DENSEFORMER_KERNELS_EXP2_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DENSEFORMER_KERNELS_EXP2_INL_H_
#undef DENSEFORMER_KERNELS_EXP2_INL_H_
#else
#define DENSEFORMER_KERNELS_EXP2_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/gelu_fast.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {

// The polynomial in x with these coefficients, the highest power first.
template <class D, class V, class... Floats>
HWY_INLINE V Polynomial(D d, V x, float highest, Floats... others) {
  namespace hn = hwy::HWY_NAMESPACE;
  V sum = hn::Set(d, highest);
  ((sum = hn::MulAdd(sum, x, hn::Set(d, others))), ...);
  return sum;
}

// 2^-x for x in [0, 125], relative error 1e-7 if precise, else 3e-6. NaN gives NaN.
template <bool kPrecise, class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V PowerOfHalf(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  // Less x, 1.5 * 2^23 + 127 has n + 127 in its low bits, n = round(-x): shifted into its place the
  // exponent of 2^n.
  const V magic = hn::Set(d, gelu_fast::kMagic);
  const V shifted = hn::Sub(magic, x);
  const V r = hn::Sub(hn::Sub(magic, shifted), x);  // in [-1/2, 1/2], exact
  const V scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted)));
  if constexpr (kPrecise) {
    return hn::Mul(scale, Polynomial(d, r, 1.53458087e-4f, 1.33999312e-3f, 9.61848898e-3f,
                                     5.55032878e-2f, 2.40226469e-1f, 6.93147206e-1f, 1.0f));
  } else {
    constexpr const float(&c)[5] = gelu_fast::kPower;
    return hn::Mul(scale, Polynomial(d, r, c[0], c[1], c[2], c[3], c[4]));
  }
}

// exp(-x) for x >= 0, 0 from x = 86 on. The error is that of rounding x / ln 2, relative x * 1e-7,
// so it is for terms of a sum whose largest is exp(0).
template <bool kPrecise, class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V ExpOfNegative(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V power = hn::Mul(x, hn::Set(d, 1.44269504f));
  return hn::IfThenZeroElse(hn::Gt(power, hn::Set(d, 125.0f)), PowerOfHalf<kPrecise>(d, power));
}

}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#endif  // per target
