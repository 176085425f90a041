// Loading and storing fp32 vectors from and to fp32 or bf16 memory, for every SIMD target: include
// it after hwy/highway.h in a kernel file. The rounding to bf16 is that of tensor/dtype.h: nearest
// even, NaN stays a NaN.
#if defined(DENSEFORMER_KERNELS_LOAD_STORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DENSEFORMER_KERNELS_LOAD_STORE_INL_H_
#undef DENSEFORMER_KERNELS_LOAD_STORE_INL_H_
#else
#define DENSEFORMER_KERNELS_LOAD_STORE_INL_H_
#endif

#include <hwy/highway.h>

#include "tensor/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> LoadF32(D d, const float* from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> LoadF32(D d, const bf16* from) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}

template <class D>
HWY_INLINE void StoreF32(D d, hn::Vec<D> value, float* to) {
  hn::StoreU(value, d, to);
}

template <class D>
HWY_INLINE void StoreF32(D d, hn::Vec<D> value, bf16* to) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  const hn::RebindToSigned<D> d32s;
  const auto raw = hn::BitCast(d32, value);
  const auto upper = hn::ShiftRight<16>(raw);
  const auto odd = hn::And(upper, hn::Set(d32, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(raw, hn::Add(odd, hn::Set(d32, 0x7fffu))));
  const auto quiet = hn::Or(upper, hn::Set(d32, 0x40u));
  const auto bits = hn::IfThenElse(hn::RebindMask(d32, hn::IsNaN(value)), quiet, rounded);
  // All values are below 2^16, so the saturating conversion from signed keeps them.
  const auto narrow = hn::DemoteTo(d16, hn::BitCast(d32s, bits));
  hn::StoreU(narrow, d16, reinterpret_cast<uint16_t*>(to));
}

}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#endif  // per target
