#include "kernels/amx.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "kernels/amx-inl.h"

DF_BEGIN_AVX512_BF16
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

}  // namespace

TileScope::TileScope(int rows) {
  TileConfig config;
  const auto first = static_cast<uint8_t>(std::min(rows, 16));
  for (const int tile : {0, 1, 4}) config.rows[tile] = first;
  if (rows > 16) {
    const auto second = static_cast<uint8_t>(std::min(rows - 16, 16));
    for (const int tile : {2, 3, 5}) config.rows[tile] = second;
  }
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
      const __mmask32 mask = FirstLanes32(i < size ? static_cast<int64_t>(size - i) : 0);
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
      LoadRows(x + row * cols + col, cols, tile);
      Transpose16(tile);
      StoreTile(tile, to);
    }
  }
}

void PackRight(const bf16* x, size_t rows, size_t cols, bf16* to) {
  const RowPairing pairing;
  for (size_t row = 0; row < rows; row += 2) {
    for (size_t col = 0; col < cols; col += 32) {
      const __m512i even = _mm512_loadu_si512(x + row * cols + col);
      const __m512i odd = _mm512_loadu_si512(x + (row + 1) * cols + col);
      bf16* const y = to + (row / 32 * (cols / 16) + col / 16) * kTileElements + row % 32 / 2 * 32;
      _mm512_storeu_si512(y, pairing.Low(even, odd));
      _mm512_storeu_si512(y + kTileElements, pairing.High(even, odd));
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
      LoadRows(from + col * from_stride + row, from_stride, tile);
      Transpose16(tile);
      const __mmask16 mask = FirstLanes(static_cast<int64_t>(size - col));
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
      const __mmask16 mask = FirstLanes(static_cast<int64_t>(size - col));
      _mm256_mask_storeu_epi16(to + row * to_stride + col, mask, (__m256i)_mm512_cvtneps_pbh(x));
    }
  }
}

}  // namespace denseformer::amx
DF_END_AVX512_BF16

namespace denseformer::amx {
namespace {

thread_local std::optional<TileScope> scope;
thread_local int scope_rows = 0;

}  // namespace

void BeginTiles(int rows) {
  if (scope && scope_rows == rows) return;
  scope.reset();
  scope.emplace(rows);
  scope_rows = rows;
}

void EndTiles() { scope.reset(); }

}  // namespace denseformer::amx
