// Several fp32 vectors from and to a stretch of memory of fp32 or bf16, in one of two orders.
//
// kPlain: vector v holds the elements [v * lanes, (v + 1) * lanes). kSplit: of each two vectors the
// first holds the even, the second the odd elements of their stretch. That is how bf16 comes apart
// in two instructions, a shift and a mask; the plain order also needs shuffles. It pays where
// several stretches are added up before one is stored.
#if defined(DENSEFORMER_KERNELS_VECTOR_ORDER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DENSEFORMER_KERNELS_VECTOR_ORDER_INL_H_
#undef DENSEFORMER_KERNELS_VECTOR_ORDER_INL_H_
#else
#define DENSEFORMER_KERNELS_VECTOR_ORDER_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {

enum class VectorOrder { kPlain, kSplit };

// 2 * lanes elements.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE void LoadSplit(D d, const bf16* from, V& even, V& odd) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Rebind<uint32_t, D> d32;
  const hn::Repartition<uint16_t, decltype(d32)> d16;
  const auto both = hn::BitCast(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from)));
  even = hn::BitCast(d, hn::ShiftLeft<16>(both));
  odd = hn::BitCast(d, hn::And(both, hn::Set(d32, 0xffff0000u)));
}

#if HWY_TARGET <= HWY_AVX3
// One instruction for each vector; Highway's own takes three.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE void LoadSplit(D, const float* from, V& even, V& odd) {
  static_assert(hwy::HWY_NAMESPACE::MaxLanes(D()) == 16);
  const __m512i evens = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i odds = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  const __m512 low = _mm512_loadu_ps(from), high = _mm512_loadu_ps(from + 16);
  even = V{_mm512_permutex2var_ps(low, evens, high)};
  odd = V{_mm512_permutex2var_ps(low, odds, high)};
}

template <bool kPast, class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE void StoreSplit(D, V even, V odd, float* to) {
  static_assert(hwy::HWY_NAMESPACE::MaxLanes(D()) == 16);
  const __m512i lower = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512i upper =
      _mm512_set_epi32(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8);
  const __m512 low = _mm512_permutex2var_ps(even.raw, lower, odd.raw);
  const __m512 high = _mm512_permutex2var_ps(even.raw, upper, odd.raw);
  if constexpr (kPast) {
    _mm512_stream_ps(to, low);
    _mm512_stream_ps(to + 16, high);
  } else {
    _mm512_storeu_ps(to, low);
    _mm512_storeu_ps(to + 16, high);
  }
}
#else
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE void LoadSplit(D d, const float* from, V& even, V& odd) {
  hwy::HWY_NAMESPACE::LoadInterleaved2(d, from, even, odd);
}

// Through the cache all the same: Highway has no such store.
template <bool kPast, class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE void StoreSplit(D d, V even, V odd, float* to) {
  hwy::HWY_NAMESPACE::StoreInterleaved2(even, odd, d, to);
}
#endif

// V * lanes elements.
template <VectorOrder kOrder, size_t V, class D, class T>
HWY_INLINE void LoadVectors(D d, const T* from, hwy::HWY_NAMESPACE::Vec<D> (&vectors)[V]) {
  const size_t lanes = hwy::HWY_NAMESPACE::Lanes(d);
  if constexpr (kOrder == VectorOrder::kSplit) {
    static_assert(V % 2 == 0);
    for (size_t v = 0; v < V; v += 2) LoadSplit(d, from + v * lanes, vectors[v], vectors[v + 1]);
  } else {
    for (size_t v = 0; v < V; ++v) vectors[v] = LoadF32(d, from + v * lanes);
  }
}

// kPast: non-temporal (stream.h); `to` must be aligned to a vector.
template <VectorOrder kOrder, bool kPast = false, size_t V, class D>
HWY_INLINE void StoreVectors(D d, const hwy::HWY_NAMESPACE::Vec<D> (&vectors)[V], float* to) {
  const size_t lanes = hwy::HWY_NAMESPACE::Lanes(d);
  if constexpr (kOrder == VectorOrder::kSplit) {
    static_assert(V % 2 == 0);
    for (size_t v = 0; v < V; v += 2)
      StoreSplit<kPast>(d, vectors[v], vectors[v + 1], to + v * lanes);
  } else if constexpr (kPast) {
    for (size_t v = 0; v < V; ++v) hwy::HWY_NAMESPACE::Stream(vectors[v], d, to + v * lanes);
  } else {
    for (size_t v = 0; v < V; ++v) StoreF32(d, vectors[v], to + v * lanes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#endif  // DENSEFORMER_KERNELS_VECTOR_ORDER_INL_H_
