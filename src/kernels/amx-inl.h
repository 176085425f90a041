// The toolkit of kernels on AMX tiles: the tile instructions, and AVX-512 functions that bring
// operands into the layouts of amx.h, one tile at a time. Included between DF_BEGIN_AVX512_BF16 and
// DF_END_AVX512_BF16 is only what uses them; everything runs only with CpuFeature::kAmxBf16.
#ifndef DENSEFORMER_KERNELS_AMX_INL_H_
#define DENSEFORMER_KERNELS_AMX_INL_H_

#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

// Only what lies between these two lines is compiled for AVX-512, so that no function of a shared
// header is. Lambdas need the attribute where they use vectors: Clang does not give it to them.
#define DF_AVX512_BF16 "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16"
#define DF_BEGIN_AVX512_BF16 HWY_PUSH_ATTRIBUTES(DF_AVX512_BF16)
#define DF_END_AVX512_BF16 HWY_POP_ATTRIBUTES
#define DF_AVX512_BF16_LAMBDA __attribute__((target(DF_AVX512_BF16)))

// By assembler and not by intrinsics: those of GCC 12 do not say that they read memory, so that the
// stores that pack an operand could move behind the load of its tile.
#define DF_TILE_LOAD(tile, from, bytes) \
  asm volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(from), "r"(bytes) : "memory")
#define DF_TILE_STORE(tile, to, bytes) \
  asm volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(to), "r"(bytes) : "memory")
#define DF_TILE_ZERO(tile) asm volatile("tilezero %%tmm" #tile ::)
#define DF_TILE_MULTIPLY(c, a, b) asm volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)
// Signed bytes of a, unsigned ones of b.
#define DF_TILE_MULTIPLY_INT8(c, a, b) asm volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)

DF_BEGIN_AVX512_BF16
namespace denseformer::amx {

// Masks of the first `count` lanes, all of them where there are fewer.
inline __mmask16 FirstLanes(int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xFFFF : (1u << count) - 1);
}
inline __mmask32 FirstLanes32(int64_t count) {
  return count >= 32 ? 0xFFFFFFFFu : static_cast<__mmask32>((1u << count) - 1);
}

inline __m512i ToBf16(__m512 low, __m512 high) { return (__m512i)_mm512_cvtne2ps_pbh(high, low); }
inline __m512 ToF32(__m256i half) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

// Transposes 16 x 16 elements of 32 bits in place. Inlined, so that the rows stay in registers.
HWY_INLINE void Transpose16(__m512i r[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 16; i += 8) {
    for (int j = 0; j < 4; ++j) {
      t[i + j] = _mm512_shuffle_i32x4(r[i + j], r[i + j + 4], 0x88);
      t[i + j + 4] = _mm512_shuffle_i32x4(r[i + j], r[i + j + 4], 0xDD);
    }
  }
  for (int j = 0; j < 8; ++j) {
    r[j] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0x88);
    r[j + 8] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0xDD);
  }
}

// Rows of 16 vectors, `stride` elements apart.
template <class T>
HWY_INLINE void LoadRows(const T* from, size_t stride, __m512i rows[16]) {
  for (size_t r = 0; r < 16; ++r) rows[r] = _mm512_loadu_si512(from + r * stride);
}

// A packed tile.
HWY_INLINE void StoreTile(const __m512i rows[16], bf16* to) {
  for (size_t r = 0; r < 16; ++r) _mm512_storeu_si512(to + r * 32, rows[r]);
}

// Up to 32 fp32 rounded to bf16, the others 0.
inline __m512i LoadRounded(const float* from, int64_t count) {
  const __m512 low = _mm512_maskz_loadu_ps(FirstLanes(count), from);
  const __m512 high =
      count > 16 ? _mm512_maskz_loadu_ps(FirstLanes(count - 16), from + 16) : _mm512_setzero_ps();
  return ToBf16(low, high);
}

// Two rows of bf16 as pairs of a right operand: a[0], b[0], a[1], b[1]... Of 16 columns in one
// vector,
HWY_INLINE __m512i PairRows(__m256i a, __m256i b) {
  const __m512i low = _mm512_cvtepu16_epi32(a), high = _mm512_cvtepu16_epi32(b);
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

// or of 32 columns in two.
class RowPairing {
 public:
  HWY_INLINE RowPairing()
      : low_(_mm512_loadu_si512(kLow)), high_(_mm512_add_epi16(low_, _mm512_set1_epi16(16))) {}

  HWY_INLINE __m512i Low(__m512i a, __m512i b) const {
    return _mm512_permutex2var_epi16(a, low_, b);
  }
  HWY_INLINE __m512i High(__m512i a, __m512i b) const {
    return _mm512_permutex2var_epi16(a, high_, b);
  }

 private:
  alignas(64) static constexpr uint16_t kLow[32] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                                    37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                                    11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  __m512i low_, high_;
};

}  // namespace denseformer::amx
DF_END_AVX512_BF16

#endif  // DENSEFORMER_KERNELS_AMX_INL_H_
