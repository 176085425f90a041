// Panels of packed weights: their layout, and a block of rows of x times a part of one.
//
//   panel p = rows [32 p, 32 p + 32) of W, zeros beyond the last row
//   fp32   [panel][k][32]                              a word is one element
//   bf16   [panel][k / 2][32][2]                       a word is a pair
//   int8   [panel][k / 4][32][4] + 128, then scales    a word is four elements; scales [panels, 32]
// Words of x hold as many elements; the last one is padded with zeros. For bf16 weights on a CPU
// without dot products of bf16, a word of x is two fp32, the odd element first; for int8 weights on
// one with AVX2 alone it is four 16-bit integers, the even elements first. Rows of x for int8 are
// padded with zeros to a multiple of kInt8RowBytes, because AMX reads so many at a time.
#ifndef DENSEFORMER_KERNELS_GEMM_GEMM_PANELS_H_
#define DENSEFORMER_KERNELS_GEMM_GEMM_PANELS_H_

#include <cstddef>
#include <cstdint>

#include "tensor/weight_format.h"

namespace denseformer {

inline constexpr size_t kPanelRows = 32;
// Bytes from where a panel is read to what is asked of the memory meanwhile, where a panel is read
// once.
inline constexpr int64_t kPanelAhead = 4096;
// x of int8 GEMMs has a scale for each group of so many terms.
inline constexpr int64_t kInt8GroupWords = 32;

// What AMX tiles read of x: 64 bytes of up to kInt8BlockRows rows.
inline constexpr int64_t kInt8RowBytes = 64;
inline constexpr int64_t kInt8BlockRows = 32;
// Rows of a block on any CPU.
inline constexpr int64_t kMostBlockRows = kInt8BlockRows;

constexpr int64_t TermsPerWord(WeightFormat format) {
  return format == WeightFormat::kF32 ? 1 : format == WeightFormat::kBF16 ? 2 : 4;
}
constexpr int64_t WordsOf(int64_t terms, WeightFormat format) {
  return (terms + TermsPerWord(format) - 1) / TermsPerWord(format);
}
constexpr int64_t Int8Groups(int64_t words) {
  return (words + kInt8GroupWords - 1) / kInt8GroupWords;
}

// A group of terms of a row of x: x = scale * q. `offset` = -128 * sum of q, because W is stored
// with 128 added.
struct Int8Group {
  float scale;
  int32_t offset;
};

// A few rows of x times words of a panel: sums [rows, 32], aligned.
struct PanelBlock {
  const std::byte* x;
  int64_t x_stride;  // bytes
  const std::byte* panel;
  int64_t words;
  int64_t rows;
  // What is asked of the memory meanwhile: `fetch_step` bytes per word, from here on.
  const std::byte* fetch;
  int64_t fetch_step;
  const Int8Group* groups;  // int8: of the first row
  int64_t groups_stride;
  bool add;  // to the sums that are there
  float* sums;
};

// int8 on AMX tiles (panel_tiles.cc), with the bits of the other kernels.
bool HasInt8Tiles();
// Up to kInt8BlockRows rows; whole tiles of 16 rows of x are read, whatever they hold. Sets up the
// tiles of the calling thread if need be.
void RunInt8Tiles(const PanelBlock& block);
// Ends what RunInt8Tiles set up, if anything.
void ReleaseInt8Tiles();

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_GEMM_GEMM_PANELS_H_
