// AMX tiles for bf16 matmuls, and the layouts that they read. x86-64 only, to be called with
// CpuFeature::kAmxBf16 (base/cpu.h); nothing here checks it.
//
// A tile holds 16 rows of 64 bytes. C += A B takes
//   A: 16 rows of 32 bf16, in C order (any distance between rows);
//   B: 16 rows, row p = pairs of rows 2p and 2p + 1 of a 32 x 16 matrix: b[2p][n], b[2p + 1][n];
//   C: 16 x 16 fp32.
// Packed tiles are kTileBytes long, rows contiguous.
#ifndef DENSEFORMER_KERNELS_AMX_H_
#define DENSEFORMER_KERNELS_AMX_H_

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace denseformer::amx {

inline constexpr size_t kTileBytes = 1024;
inline constexpr size_t kTileElements = kTileBytes / sizeof(bf16);

// Tiles for this thread while it lives; then what was set before. Tiles 0, 1 and 4 have the first
// 16 of `rows` rows, tiles 2, 3 and 5 those behind them, up to 16, where there are any; all others
// are full.
class TileScope {
 public:
  explicit TileScope(int rows = 32);
  ~TileScope();
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;

 private:
  alignas(64) uint8_t before_[64];
};

// A TileScope that this thread keeps from call to call, as kernels do that run piece by piece. A
// call with the same number of rows costs nothing; the last piece ends with EndTiles.
void BeginTiles(int rows);
void EndTiles();

// The left operand of Multiply: two blocks of 16 rows, over all terms of the sum.
struct LeftTiles {
  const bf16* first;
  size_t second;  // elements from the first block of rows to the second
  size_t stride;  // elements from row to row
  size_t step;    // elements to the next 32 columns
};

// The right operand: two blocks of 16 columns in packed tiles.
struct RightTiles {
  const bf16* first;
  size_t second;  // elements from the first block of columns to the second
  size_t step;    // elements to the next 32 rows
};

// c [32, 32] (+)= left [32, 32 * steps] right [32 * steps, 32]; rows of c are c_stride apart.
void Multiply(const LeftTiles& left, const RightTiles& right, size_t steps, bool add, float* c,
              size_t c_stride);

// to [padded_rows, cols] = from [rows, size] with zeros around; cols is a multiple of 32. Returns
// whether all values are finite.
bool PackPadded(const bf16* from, size_t stride, size_t rows, size_t size, size_t padded_rows,
                size_t cols, bf16* to);

// Packs x [rows, cols] (rows and cols multiples of 32) as right operand x^T: tile (r, c) at
// (r * cols / 32 + c) covers rows [16 r, 16 r + 16) of x as columns, and columns [32 c, ...) of x
// as the sum.
void PackTransposedRight(const bf16* x, size_t rows, size_t cols, bf16* to);

// Packs x [rows, cols] as right operand x: tile (r, c) at (r * cols / 16 + c) covers rows
// [32 r, ...) of x as the sum and columns [16 c, ...).
void PackRight(const bf16* x, size_t rows, size_t cols, bf16* to);

// From what PackTransposedRight made of x [rows, cols], the left operand x^T: tile (c, r) at
// (c * rows / 32 + r) covers columns [16 c, ...) of x as rows, and rows [32 r, ...) as the sum.
void PackTransposedLeft(const bf16* transposed_right, size_t rows, size_t cols, bf16* to);

// to [rows, size] = scale * from^T rounded to bf16; from [>= size, stride of from].
void StoreTransposed(const float* from, size_t from_stride, size_t rows, size_t size, float scale,
                     bf16* to, size_t to_stride);

// to [rows, size] = from times scales[row * scales_step], rounded to bf16.
void StoreRows(const float* from, size_t from_stride, size_t rows, size_t size, const float* scales,
               size_t scales_step, bf16* to, size_t to_stride);

}  // namespace denseformer::amx

#endif  // DENSEFORMER_KERNELS_AMX_H_
