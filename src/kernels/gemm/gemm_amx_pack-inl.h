// How gemm_amx.cc packs operands into tiles: panels of 16 rows (left) or 16 columns (right), tiles
// of 32 terms, pairs of terms side by side in a right tile. Included within its target options.
#ifndef DENSEFORMER_KERNELS_GEMM_GEMM_AMX_PACK_INL_H_
#define DENSEFORMER_KERNELS_GEMM_GEMM_AMX_PACK_INL_H_

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "kernels/amx-inl.h"

namespace denseformer {
namespace {

using amx::FirstLanes;
using amx::FirstLanes32;
using amx::LoadRounded;
using amx::LoadRows;
using amx::PairRows;
using amx::StoreTile;
using amx::ToBf16;
using amx::ToF32;
using amx::Transpose16;

constexpr int64_t kTileRows = 16;              // rows of a left tile, columns of a right tile
constexpr int64_t kTileK = 32;                 // terms of a tile
constexpr int64_t kTile = kTileRows * kTileK;  // elements: 1 KB
constexpr int64_t kBlock = 2 * kTileRows;      // rows and columns of a register block

inline int64_t DivUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline __m256i LoadRow16(const bf16* from, int64_t n) {
  return _mm256_maskz_loadu_epi16(FirstLanes(n), from);
}

// 32 rows of k (fewer at the end: zero) and 16 columns, pairs of k interleaved: vector r holds rows
// 2r, 2r + 1.
inline void LoadPairs(const bf16* from, int64_t stride, int64_t rows, int64_t cols,
                      __m512i pairs[16]) {
  for (int64_t r = 0; r < 16; ++r) {
    const __m256i first =
        2 * r < rows ? LoadRow16(from + 2 * r * stride, cols) : _mm256_setzero_si256();
    const __m256i second =
        2 * r + 1 < rows ? LoadRow16(from + (2 * r + 1) * stride, cols) : _mm256_setzero_si256();
    pairs[r] = PairRows(first, second);
  }
}

inline void StreamLine(bf16* to, __m512i line) {
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), line);
}

// Rows of bf16 that are packed next, `bytes` of each.
inline void PrefetchNext(const bf16* from, int64_t stride, int64_t rows, int64_t bytes) {
  for (int64_t r = 0; r < rows; ++r) {
    const char* row = reinterpret_cast<const char*>(from + r * stride);
    for (int64_t b = 0; b < bytes; b += 64) _mm_prefetch(row + b, _MM_HINT_T0);
  }
}

// Calls pack(t, panel, pairs) for the tiles of `panels` panels of 16 columns from b [k, n] in
// memory, the panels of a group of 32 rows one after the other, as they share cache lines.
template <class F>
inline void ForEachTile(const bf16* b, int64_t k, int64_t n, int64_t first, int64_t panels,
                        F pack) {
  const int64_t column = first * kTileRows, cols = std::min(panels * kTileRows, n - column);
  for (int64_t t = 0; t * kTileK < k; ++t) {
    const bf16* from = b + t * kTileK * n + column;
    const int64_t rows = std::min(kTileK, k - t * kTileK);
    PrefetchNext(from + kTileK * n, n, std::clamp<int64_t>(k - (t + 1) * kTileK, 0, kTileK),
                 cols * 2);
    for (int64_t p = 0; p < panels; ++p) {
      __m512i pairs[16];
      LoadPairs(from + p * kTileRows, n, rows, std::min(kTileRows, cols - p * kTileRows), pairs);
      pack(t, p, pairs);
    }
  }
}

// Panels [first, first + panels) of a right operand from b [k, n] in memory.
inline void PackRight(const bf16* b, int64_t k, int64_t n, int64_t first, int64_t panels,
                      bf16* to) {
  const int64_t tiles = DivUp(k, kTileK);
  ForEachTile(b, k, n, first, panels,
              [&](int64_t t, int64_t p, __m512i pairs[16])
                  DF_AVX512_BF16_LAMBDA { StoreTile(pairs, to + (p * tiles + t) * kTile); });
}

// Panels [first, first + panels) of a left operand from its transpose, a [k, m] in memory.
inline void PackLeftTransposed(const bf16* a, int64_t k, int64_t m, int64_t first, int64_t panels,
                               bf16* to) {
  const int64_t tiles = DivUp(k, kTileK);
  ForEachTile(a, k, m, first, panels,
              [&](int64_t t, int64_t p, __m512i pairs[16]) DF_AVX512_BF16_LAMBDA {
                Transpose16(pairs);
                StoreTile(pairs, to + (p * tiles + t) * kTile);
              });
}

// Terms [32 t, 32 t + 32) of the right operand of dy W, all panels of it, from w [out, in] packed
// for x W^T: pairs of neighboring rows of W instead of neighboring columns. By non-temporal stores:
// the lines would be fetched only to be overwritten.
inline void TransposeTiles(const bf16* packed, int64_t out, int64_t in, int64_t t,
                           bf16* transposed) {
  const int64_t in_tiles = DivUp(in, kTileK), out_tiles = DivUp(out, kTileK);
  const int64_t out_panels = DivUp(out, kTileRows), in_panels = DivUp(in, kTileRows);
  const __m512i low = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
  const __m512i high = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
  for (int64_t i = 0; i < in_tiles; ++i) {
    bf16* to[2] = {transposed + (2 * i * out_tiles + t) * kTile,
                   transposed + ((2 * i + 1) * out_tiles + t) * kTile};
    for (int64_t half = 0; half < 2; ++half) {
      const int64_t panel = 2 * t + half;
      __m512i rows[16];  // of W, 32 columns each
      if (panel < out_panels) {
        const bf16* from = packed + (panel * in_tiles + i) * kTile;
        LoadRows(from, 32, rows);
        PrefetchNext(from + 2 * kTile, 32, 16, 64);
        Transpose16(rows);
      } else {
        for (__m512i& row : rows) row = _mm512_setzero_si512();
      }
      for (int q = 0; q < 8; ++q) {
        const __m512i even = _mm512_unpacklo_epi16(rows[2 * q], rows[2 * q + 1]);
        const __m512i odd = _mm512_unpackhi_epi16(rows[2 * q], rows[2 * q + 1]);
        const int64_t at = (8 * half + q) * 32;
        StreamLine(to[0] + at, _mm512_permutex2var_epi64(even, low, odd));
        if (2 * i + 1 < in_panels) {
          StreamLine(to[1] + at, _mm512_permutex2var_epi64(even, high, odd));
        }
      }
    }
  }
}

// One panel of 16 rows of a left operand from k columns of x in memory, rows `stride` apart.
inline void PackLeftPanel(const bf16* from, int64_t stride, int64_t rows, int64_t k, bf16* to) {
  for (int64_t t = 0; t * kTileK < k; ++t) {
    const __mmask32 mask = FirstLanes32(k - t * kTileK);
    for (int64_t r = 0; r < kTileRows; ++r) {
      const __m512i row = r < rows ? _mm512_maskz_loadu_epi16(mask, from + r * stride + t * kTileK)
                                   : _mm512_setzero_si512();
      _mm512_storeu_si512(to + t * kTile + r * 32, row);
    }
  }
}

// Elements of a row ahead of the block that is packed.
constexpr int64_t kPackAhead = 128;

inline void PrefetchRows(const float* from, int64_t rows, int64_t stride) {
  for (int64_t r = 0; r < rows; ++r) {
    _mm_prefetch(reinterpret_cast<const char*>(from + r * stride), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(from + r * stride + 16), _MM_HINT_T0);
  }
}

}  // namespace
}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_GEMM_GEMM_AMX_PACK_INL_H_
