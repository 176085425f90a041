// bf16 matrix products on AMX tiles, for CPUs that have them (CpuLevel::kAmx).
//
// Operands are packed into tiles of 1 KB, as the tile registers hold them:
//   left   [M / 16][K / 32][16 rows][32 k]
//   right  [N / 16][K / 32][16 pairs of k][16 columns][2]
// padded with zeros to whole tiles. A product keeps up to 3 x 2 result tiles in registers and walks
// along k; every result element is the sum over k in one fixed order, so the bits do not depend on
// the number of threads.
#ifndef DENSEFORMER_KERNELS_GEMM_GEMM_AMX_H_
#define DENSEFORMER_KERNELS_GEMM_GEMM_AMX_H_

#include <cstddef>
#include <cstdint>

#include "tensor/tensor.h"

namespace denseformer {

// Columns of the results that are finished together, and rows of a band of weights.
inline constexpr int64_t kAmxBlock = 32;

// Whether these products can run here.
bool HasAmxGemm();

// Elements of a packed matrix of n columns (or rows) and k terms.
int64_t AmxPackedSize(int64_t n, int64_t k);

// Packs rows [band * kAmxBlock, (band + 1) * kAmxBlock) of w [out, in] fp32, as far as there are
// that many, for the right operand of x w^T: AmxPackedSize(out, in) elements.
void AmxPackBand(const Tensor& w, int64_t band, bf16* packed);

// Rotary positions (rotary.h) on the first columns of a product whose rows are sequences.
struct AmxTurn {
  const float* table = nullptr;  // [time, head_size], or null for none
  int64_t head_size = 0;         // a multiple of kAmxBlock
  int64_t time = 0;              // rows of a sequence
  int64_t columns = 0;           // a multiple of head_size
};

// What becomes of the sums s [M, n] of a product; rows are contiguous.
struct AmxOutput {
  int64_t n = 0;
  const float* bias = nullptr;  // [n] or null
  Tensor y = {};                // s + bias: fp32 or bf16
  Tensor gelu = {};             // GELU(s + bias rounded to bf16): bf16; y may be empty or bf16 then
  AmxTurn turn = {};            // on y, bf16, after rounding
};

// x [M, k] bf16 * right to `out`.
void AmxMultiply(const Tensor& x, const bf16* right, const AmxOutput& out);

// dx [M, in] = dy [M, out] bf16 * w, from w as AmxPackBand packs it.
void AmxMultiplyTurned(const Tensor& dy, const bf16* packed, const Tensor& dx);

// c [m, n] fp32 = a^T b, or c + a^T b with `add`; a [rows, m], b [rows, n] bf16.
// *squares, where it is given: the sum of the squares of c.
void AmxMultiplyTransposed(const Tensor& a, const Tensor& b, const Tensor& c, bool add,
                           double* squares);

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_GEMM_GEMM_AMX_H_
