// Vectors of fp32 from and to memory of fp32 or bf16: the sums of every kernel are fp32, whatever
// the tensors hold. Stores round to nearest even and keep NaN a NaN, as tensor/dtype.h does; some
// CPUs flush denormal numbers to 0.
#if defined(DENSEFORMER_KERNELS_LOAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DENSEFORMER_KERNELS_LOAD_INL_H_
#undef DENSEFORMER_KERNELS_LOAD_INL_H_
#else
#define DENSEFORMER_KERNELS_LOAD_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/simd.h"
#include "tensor/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {

template <class D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> LoadF32(D d, const float* from) {
  return hwy::HWY_NAMESPACE::LoadU(d, from);
}

template <class D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> LoadF32(D d, const bf16* from) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  const auto half = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, half)));
}

template <class D>
HWY_INLINE void StoreF32(D d, hwy::HWY_NAMESPACE::Vec<D> value, float* to) {
  hwy::HWY_NAMESPACE::StoreU(value, d, to);
}

// In integer arithmetic: what every CPU can do.
template <class D>
HWY_INLINE void StoreRounded(D d, hwy::HWY_NAMESPACE::Vec<D> value, bf16* to) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  const hn::Rebind<int32_t, D> di32;
  const auto raw = hn::BitCast(d32, value);
  const auto upper = hn::ShiftRight<16>(raw);
  const auto odd = hn::And(upper, hn::Set(d32, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(raw, hn::Set(d32, 0x7fff)), odd));
  const auto quiet = hn::Or(upper, hn::Set(d32, 0x40));
  const auto is_nan = hn::RebindMask(d32, hn::IsNaN(value));
  const auto bits = hn::BitCast(di32, hn::IfThenElse(is_nan, quiet, rounded));
  hn::StoreU(hn::DemoteTo(d16, bits), d16, reinterpret_cast<uint16_t*>(to));
}

#if HWY_TARGET <= HWY_AVX3  // and better ones: AVX3_DL, AVX3_ZEN4, AVX3_SPR
// One instruction instead of ten where the CPU has AVX-512 BF16; the compiler's flags for
// AVX3 do not name it, hence by hand. It flushes denormal numbers to 0.
template <class D>
HWY_INLINE void StoreF32(D d, hwy::HWY_NAMESPACE::Vec<D> value, bf16* to) {
  if constexpr (hwy::HWY_NAMESPACE::MaxLanes(D()) == 16) {
    if (HWY_LIKELY(simd_internal::has_avx512_bf16)) {
      __m256i bits;
      asm("vcvtneps2bf16 %1, %0" : "=v"(bits) : "v"(value.raw));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bits);
      return;
    }
  }
  StoreRounded(d, value, to);
}
#else
template <class D>
HWY_INLINE void StoreF32(D d, hwy::HWY_NAMESPACE::Vec<D> value, bf16* to) {
  StoreRounded(d, value, to);
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#endif  // DENSEFORMER_KERNELS_LOAD_INL_H_
