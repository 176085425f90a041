// The inner loops of gemm_amx.cc: a few result tiles stay in registers while the sum runs. Included
// within its target options.
//
// A step along k loads (kPanels + 2) KB from L2 for 2 * kPanels tile products, and the bandwidth of
// L2 is the limit: 3 panels take 0.9 of the time of 2 for each tile product.
#ifndef DENSEFORMER_KERNELS_GEMM_GEMM_AMX_BLOCK_INL_H_
#define DENSEFORMER_KERNELS_GEMM_GEMM_AMX_BLOCK_INL_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/gemm/gemm_amx_pack-inl.h"

namespace denseformer {
namespace {

// Brings what the next register blocks need from memory into L2 while this one is computed.
struct Prefetch {
  const bf16* from = nullptr;
  int64_t lines = 0;  // for each step along k

  void Step(int64_t t) const {
    for (int64_t i = 0; i < lines; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(from + (t * lines + i) * 32), _MM_HINT_T1);
    }
  }
};

// A row of a packed tile.
constexpr int64_t kTileRowBytes = 64;
// Rows of 32 results are kBlock floats apart.
constexpr int64_t kSumBytes = kBlock * 4;
// Results of kTileRows rows.
constexpr int64_t kSumPanel = kTileRows * kBlock;

// c [16 p, 32] = p = 1, 2 or 3 contiguous left panels times the two right panels b0, b1 of
// `tiles` tiles. `overlap` does other work while the tile unit is busy, in small portions, as only
// so many instructions can wait in the pipeline.
//
// One panel: for a few rows, where reading the right operand is all that takes time.
template <class Overlap>
void MultiplyPanel(const bf16* a0, const bf16* b0, const bf16* b1, int64_t tiles, Overlap& overlap,
                   float* c) {
  DF_TILE_ZERO(0);
  DF_TILE_ZERO(1);
  for (int64_t t = 0; t < tiles; ++t) {
    DF_TILE_LOAD(4, a0 + t * kTile, kTileRowBytes);
    DF_TILE_LOAD(6, b0 + t * kTile, kTileRowBytes);
    DF_TILE_MULTIPLY(0, 4, 6);
    DF_TILE_LOAD(7, b1 + t * kTile, kTileRowBytes);
    DF_TILE_MULTIPLY(1, 4, 7);
    overlap.Rows();
    overlap.Step(t);
  }
  DF_TILE_STORE(0, c, kSumBytes);
  DF_TILE_STORE(1, c + kTileRows, kSumBytes);
}

template <class Overlap>
void MultiplyPair(const bf16* a0, const bf16* b0, const bf16* b1, int64_t tiles, Overlap& overlap,
                  float* c) {
  const bf16* a1 = a0 + tiles * kTile;
  DF_TILE_ZERO(0);
  DF_TILE_ZERO(1);
  DF_TILE_ZERO(2);
  DF_TILE_ZERO(3);
  for (int64_t t = 0; t < tiles; ++t) {
    DF_TILE_LOAD(4, a0 + t * kTile, kTileRowBytes);
    DF_TILE_LOAD(6, b0 + t * kTile, kTileRowBytes);
    DF_TILE_MULTIPLY(0, 4, 6);
    DF_TILE_LOAD(7, b1 + t * kTile, kTileRowBytes);
    DF_TILE_MULTIPLY(1, 4, 7);
    overlap.Rows();
    DF_TILE_LOAD(5, a1 + t * kTile, kTileRowBytes);
    DF_TILE_MULTIPLY(2, 5, 6);
    DF_TILE_MULTIPLY(3, 5, 7);
    overlap.Rows();
    overlap.Step(t);
  }
  DF_TILE_STORE(0, c, kSumBytes);
  DF_TILE_STORE(1, c + kTileRows, kSumBytes);
  DF_TILE_STORE(2, c + kSumPanel, kSumBytes);
  DF_TILE_STORE(3, c + kSumPanel + kTileRows, kSumBytes);
}

// Six results leave two registers for operands: left tiles are loaded twice, from L1 the second
// time.
template <class Overlap>
void MultiplyTriple(const bf16* a0, const bf16* b0, const bf16* b1, int64_t tiles, Overlap& overlap,
                    float* c) {
  const bf16* a1 = a0 + tiles * kTile;
  const bf16* a2 = a1 + tiles * kTile;
  DF_TILE_ZERO(0);
  DF_TILE_ZERO(1);
  DF_TILE_ZERO(2);
  DF_TILE_ZERO(3);
  DF_TILE_ZERO(4);
  DF_TILE_ZERO(5);
  for (int64_t t = 0; t < tiles; ++t) {
    DF_TILE_LOAD(6, b0 + t * kTile, kTileRowBytes);
    DF_TILE_LOAD(7, a0 + t * kTile, kTileRowBytes);
    DF_TILE_MULTIPLY(0, 7, 6);
    DF_TILE_LOAD(7, a1 + t * kTile, kTileRowBytes);
    DF_TILE_MULTIPLY(2, 7, 6);
    overlap.Rows();
    DF_TILE_LOAD(7, a2 + t * kTile, kTileRowBytes);
    DF_TILE_MULTIPLY(4, 7, 6);
    DF_TILE_LOAD(6, b1 + t * kTile, kTileRowBytes);
    DF_TILE_MULTIPLY(5, 7, 6);
    overlap.Rows();
    DF_TILE_LOAD(7, a1 + t * kTile, kTileRowBytes);
    DF_TILE_MULTIPLY(3, 7, 6);
    DF_TILE_LOAD(7, a0 + t * kTile, kTileRowBytes);
    DF_TILE_MULTIPLY(1, 7, 6);
    overlap.Step(t);
  }
  DF_TILE_STORE(0, c, kSumBytes);
  DF_TILE_STORE(1, c + kTileRows, kSumBytes);
  DF_TILE_STORE(2, c + kSumPanel, kSumBytes);
  DF_TILE_STORE(3, c + kSumPanel + kTileRows, kSumBytes);
  DF_TILE_STORE(4, c + 2 * kSumPanel, kSumBytes);
  DF_TILE_STORE(5, c + 2 * kSumPanel + kTileRows, kSumBytes);
}

}  // namespace
}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_GEMM_GEMM_AMX_BLOCK_INL_H_
