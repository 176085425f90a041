#include "kernels/amx.h"

#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <cstring>

// The functions below are compiled for AVX-512 whatever the flags of the file, so that no function
// of a shared header is.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")

// By assembler and not by intrinsics: those of GCC 12 do not say that they read memory.
#define DF_TILE_LOAD(tile, from, bytes) \
  asm volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(from), "r"(bytes) : "memory")
#define DF_TILE_STORE(tile, to, bytes) \
  asm volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(to), "r"(bytes) : "memory")
#define DF_TILE_ZERO(tile) asm volatile("tilezero %%tmm" #tile ::)
#define DF_TILE_MULTIPLY(c, a, b) asm volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)

namespace denseformer::amx {
namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

// In place: 16 vectors of 16 dwords become their transpose.
HWY_INLINE void Transpose(__m512i (&x)[16]) {
  __m512i y[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
    x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
    x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
    x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
  }
  // x[4 g + k] holds, in its 128-bit lane m, element 4 m + k of rows 4 g .. 4 g + 3.
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    const __m512i even01 = _mm512_shuffle_i32x4(x[k], x[4 + k], 0x88);
    const __m512i odd01 = _mm512_shuffle_i32x4(x[k], x[4 + k], 0xdd);
    const __m512i even23 = _mm512_shuffle_i32x4(x[8 + k], x[12 + k], 0x88);
    const __m512i odd23 = _mm512_shuffle_i32x4(x[8 + k], x[12 + k], 0xdd);
    y[k] = _mm512_shuffle_i32x4(even01, even23, 0x88);
    y[8 + k] = _mm512_shuffle_i32x4(even01, even23, 0xdd);
    y[4 + k] = _mm512_shuffle_i32x4(odd01, odd23, 0x88);
    y[12 + k] = _mm512_shuffle_i32x4(odd01, odd23, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) x[i] = y[i];
}

}  // namespace

TileScope::TileScope() {
  const TileConfig config;
  asm volatile("sttilecfg %0" : "=m"(before_));
  asm volatile("ldtilecfg %0" ::"m"(config));
}

TileScope::~TileScope() { asm volatile("ldtilecfg %0" ::"m"(before_)); }

void Multiply(const LeftTiles& left, const RightTiles& right, size_t steps, bool add, float* c,
              size_t c_stride) {
  const size_t c_bytes = c_stride * sizeof(float), a_bytes = left.stride * sizeof(bf16);
  constexpr size_t kPacked = 64;
  float* const c1 = c + 16 * c_stride;
  if (add) {
    DF_TILE_LOAD(0, c, c_bytes);
    DF_TILE_LOAD(1, c + 16, c_bytes);
    DF_TILE_LOAD(2, c1, c_bytes);
    DF_TILE_LOAD(3, c1 + 16, c_bytes);
  } else {
    DF_TILE_ZERO(0);
    DF_TILE_ZERO(1);
    DF_TILE_ZERO(2);
    DF_TILE_ZERO(3);
  }
  const bf16 *a0 = left.first, *a1 = left.first + left.second;
  const bf16 *b0 = right.first, *b1 = right.first + right.second;
  for (size_t i = 0; i < steps; ++i) {
    DF_TILE_LOAD(4, a0, a_bytes);
    DF_TILE_LOAD(6, b0, kPacked);
    DF_TILE_MULTIPLY(0, 4, 6);
    DF_TILE_LOAD(7, b1, kPacked);
    DF_TILE_MULTIPLY(1, 4, 7);
    DF_TILE_LOAD(5, a1, a_bytes);
    DF_TILE_MULTIPLY(2, 5, 6);
    DF_TILE_MULTIPLY(3, 5, 7);
    a0 += left.step;
    a1 += left.step;
    b0 += right.step;
    b1 += right.step;
  }
  DF_TILE_STORE(0, c, c_bytes);
  DF_TILE_STORE(1, c + 16, c_bytes);
  DF_TILE_STORE(2, c1, c_bytes);
  DF_TILE_STORE(3, c1 + 16, c_bytes);
}

bool PackPadded(const bf16* from, size_t stride, size_t rows, size_t size, size_t padded_rows,
                size_t cols, bf16* to) {
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  __mmask32 not_finite = 0;
  for (size_t row = 0; row < rows; ++row, from += stride, to += cols) {
    for (size_t i = 0; i < cols; i += 32) {
      const size_t left = i < size ? std::min<size_t>(size - i, 32) : 0;
      const __mmask32 mask = static_cast<__mmask32>((uint64_t{1} << left) - 1);
      const __m512i x = _mm512_maskz_loadu_epi16(mask, from + i);
      not_finite |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(x, exponent), exponent);
      _mm512_storeu_si512(to + i, x);
    }
  }
  std::memset(static_cast<void*>(to), 0, (padded_rows - rows) * cols * sizeof(bf16));
  return not_finite == 0;
}

void PackTransposedRight(const bf16* x, size_t rows, size_t cols, bf16* to) {
  for (size_t row = 0; row < rows; row += 16) {
    for (size_t col = 0; col < cols; col += 32, to += kTileElements) {
      __m512i tile[16];
#pragma GCC unroll 16
      for (size_t i = 0; i < 16; ++i) {
        tile[i] = _mm512_loadu_si512(x + (row + i) * cols + col);
      }
      Transpose(tile);
#pragma GCC unroll 16
      for (size_t i = 0; i < 16; ++i) _mm512_storeu_si512(to + 32 * i, tile[i]);
    }
  }
}

void PackRight(const bf16* x, size_t rows, size_t cols, bf16* to) {
  alignas(64) uint16_t low[32], high[32];
  for (uint16_t i = 0; i < 32; ++i) {
    low[i] = static_cast<uint16_t>(i / 2 + (i % 2) * 32);
    high[i] = static_cast<uint16_t>(low[i] + 16);
  }
  const __m512i low_index = _mm512_load_si512(low), high_index = _mm512_load_si512(high);
  for (size_t row = 0; row < rows; row += 2) {
    for (size_t col = 0; col < cols; col += 32) {
      const __m512i even = _mm512_loadu_si512(x + row * cols + col);
      const __m512i odd = _mm512_loadu_si512(x + (row + 1) * cols + col);
      bf16* const y = to + (row / 32 * (cols / 16) + col / 16) * kTileElements + row % 32 / 2 * 32;
      _mm512_storeu_si512(y, _mm512_permutex2var_epi16(even, low_index, odd));
      _mm512_storeu_si512(y + kTileElements, _mm512_permutex2var_epi16(even, high_index, odd));
    }
  }
}

void PackTransposedLeft(const bf16* transposed_right, size_t rows, size_t cols, bf16* to) {
  alignas(64) uint16_t even[32], odd[32];
  for (uint16_t i = 0; i < 32; ++i) {
    even[i] = static_cast<uint16_t>(2 * i);
    odd[i] = static_cast<uint16_t>(2 * i + 1);
  }
  const __m512i even_index = _mm512_load_si512(even), odd_index = _mm512_load_si512(odd);
  const size_t tiles = cols / 32;
  for (size_t r = 0; r < rows / 32; ++r) {
    for (size_t c = 0; c < tiles; ++c) {
      const bf16* const x0 = transposed_right + (2 * r * tiles + c) * kTileElements;
      const bf16* const x1 = x0 + tiles * kTileElements;
      for (size_t pair = 0; pair < 16; ++pair) {
        const __m512i low = _mm512_loadu_si512(x0 + 32 * pair);
        const __m512i high = _mm512_loadu_si512(x1 + 32 * pair);
        const size_t row = 2 * pair;
        bf16* const y = to + ((2 * c + row / 16) * (rows / 32) + r) * kTileElements + row % 16 * 32;
        _mm512_storeu_si512(y, _mm512_permutex2var_epi16(low, even_index, high));
        _mm512_storeu_si512(y + 32, _mm512_permutex2var_epi16(low, odd_index, high));
      }
    }
  }
}

void StoreTransposed(const float* from, size_t from_stride, size_t rows, size_t size, float scale,
                     bf16* to, size_t to_stride) {
  const __m512 factor = _mm512_set1_ps(scale);
  for (size_t row = 0; row < rows; row += 16) {
    const size_t rows_here = std::min<size_t>(16, rows - row);
    for (size_t col = 0; col < size; col += 16) {
      __m512i tile[16];
#pragma GCC unroll 16
      for (size_t i = 0; i < 16; ++i) {
        tile[i] = _mm512_loadu_si512(from + (col + i) * from_stride + row);
      }
      Transpose(tile);
      const __mmask16 mask = static_cast<__mmask16>((1u << std::min<size_t>(16, size - col)) - 1);
      for (size_t i = 0; i < rows_here; ++i) {
        const __m512 x = _mm512_mul_ps(_mm512_castsi512_ps(tile[i]), factor);
        _mm256_mask_storeu_epi16(to + (row + i) * to_stride + col, mask,
                                 (__m256i)_mm512_cvtneps_pbh(x));
      }
    }
  }
}

void StoreRows(const float* from, size_t from_stride, size_t rows, size_t size, const float* scales,
               size_t scales_step, bf16* to, size_t to_stride) {
  for (size_t row = 0; row < rows; ++row) {
    const __m512 factor = _mm512_set1_ps(scales[row * scales_step]);
    for (size_t col = 0; col < size; col += 16) {
      const __m512 x = _mm512_mul_ps(_mm512_loadu_ps(from + row * from_stride + col), factor);
      const __mmask16 mask = static_cast<__mmask16>((1u << std::min<size_t>(16, size - col)) - 1);
      _mm256_mask_storeu_epi16(to + row * to_stride + col, mask, (__m256i)_mm512_cvtneps_pbh(x));
    }
  }
}

}  // namespace denseformer::amx
HWY_POP_ATTRIBUTES
