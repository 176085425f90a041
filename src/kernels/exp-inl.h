// exp(x) for vectors of fp32, within 1 ulp over the whole range: 0 below the denormals, infinity
// above the largest float, NaN for NaN.
//
//   exp(x) = 2^n exp(r), n = round(x / ln 2), r = x - n ln 2 in [-0.35, 0.35]
//   exp(r) = 1 + r + r^2 p(r), p of degree 4 (interpolated at Chebyshev points, error 2^-27)
#if defined(DENSEFORMER_KERNELS_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DENSEFORMER_KERNELS_EXP_INL_H_
#undef DENSEFORMER_KERNELS_EXP_INL_H_
#else
#define DENSEFORMER_KERNELS_EXP_INL_H_
#endif

#include <hwy/highway.h>

#include <limits>

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {

template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Exp(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits of the sum.
  const V magic = hn::Set(d, 12582912.0f);
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const V n = hn::Sub(shifted, magic);
  // ln 2 in two parts, the first so short that n times it is exact.
  const V r =
      hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x));
  V p = hn::Set(d, 0x1.6d127ep-10f);
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.120ce4p-7f));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.555518p-5f));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.5554dcp-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  const V fraction = hn::Add(hn::MulAdd(hn::Mul(r, r), p, r), hn::Set(d, 1.0f));
  // 2^n as a product of two powers, each within the exponents of a float: the first is exact, so
  // denormal results round once.
  const auto exponent = hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, magic));
  const auto half = hn::ShiftRight<1>(exponent);
  const auto bias = hn::Set(di, 127);
  const V scale0 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const V scale1 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(exponent, half), bias)));
  const V y = hn::Mul(hn::Mul(fraction, scale0), scale1);
  const V finite = hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -104.0f)), y);
  return hn::IfThenElse(hn::Gt(x, hn::Set(d, 88.8f)),
                        hn::Set(d, std::numeric_limits<float>::infinity()), finite);
}

}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#endif  // DENSEFORMER_KERNELS_EXP_INL_H_
