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
  _tile_zero(0);
  _tile_zero(1);
  for (int64_t t = 0; t < tiles; ++t) {
    _tile_loadd(4, a0 + t * kTile, 64);
    _tile_loadd(6, b0 + t * kTile, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b1 + t * kTile, 64);
    _tile_dpbf16ps(1, 4, 7);
    overlap.Rows();
    overlap.Step(t);
  }
  _tile_stored(0, c, kSumBytes);
  _tile_stored(1, c + kTileRows, kSumBytes);
}

template <class Overlap>
void MultiplyPair(const bf16* a0, const bf16* b0, const bf16* b1, int64_t tiles, Overlap& overlap,
                  float* c) {
  const bf16* a1 = a0 + tiles * kTile;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t t = 0; t < tiles; ++t) {
    _tile_loadd(4, a0 + t * kTile, 64);
    _tile_loadd(6, b0 + t * kTile, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b1 + t * kTile, 64);
    _tile_dpbf16ps(1, 4, 7);
    overlap.Rows();
    _tile_loadd(5, a1 + t * kTile, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    overlap.Rows();
    overlap.Step(t);
  }
  _tile_stored(0, c, kSumBytes);
  _tile_stored(1, c + kTileRows, kSumBytes);
  _tile_stored(2, c + kSumPanel, kSumBytes);
  _tile_stored(3, c + kSumPanel + kTileRows, kSumBytes);
}

// Six results leave two registers for operands: left tiles are loaded twice, from L1 the second
// time.
template <class Overlap>
void MultiplyTriple(const bf16* a0, const bf16* b0, const bf16* b1, int64_t tiles, Overlap& overlap,
                    float* c) {
  const bf16* a1 = a0 + tiles * kTile;
  const bf16* a2 = a1 + tiles * kTile;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  for (int64_t t = 0; t < tiles; ++t) {
    _tile_loadd(6, b0 + t * kTile, 64);
    _tile_loadd(7, a0 + t * kTile, 64);
    _tile_dpbf16ps(0, 7, 6);
    _tile_loadd(7, a1 + t * kTile, 64);
    _tile_dpbf16ps(2, 7, 6);
    overlap.Rows();
    _tile_loadd(7, a2 + t * kTile, 64);
    _tile_dpbf16ps(4, 7, 6);
    _tile_loadd(6, b1 + t * kTile, 64);
    _tile_dpbf16ps(5, 7, 6);
    overlap.Rows();
    _tile_loadd(7, a1 + t * kTile, 64);
    _tile_dpbf16ps(3, 7, 6);
    _tile_loadd(7, a0 + t * kTile, 64);
    _tile_dpbf16ps(1, 7, 6);
    overlap.Step(t);
  }
  _tile_stored(0, c, kSumBytes);
  _tile_stored(1, c + kTileRows, kSumBytes);
  _tile_stored(2, c + kSumPanel, kSumBytes);
  _tile_stored(3, c + kSumPanel + kTileRows, kSumBytes);
  _tile_stored(4, c + 2 * kSumPanel, kSumBytes);
  _tile_stored(5, c + 2 * kSumPanel + kTileRows, kSumBytes);
}

}  // namespace
}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_GEMM_GEMM_AMX_BLOCK_INL_H_
