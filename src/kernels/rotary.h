// Rotary positions on q and k: adjacent pairs (2m, 2m+1) of each head are rotated by
// t * base^(-2m / head_size): (a, b) -> (a cos - b sin, b cos + a sin).
#ifndef DENSEFORMER_KERNELS_ROTARY_H_
#define DENSEFORMER_KERNELS_ROTARY_H_

#include "tensor/tensor.h"

namespace denseformer {

// Fills table [T, head_size] fp32: cos and sin of pair m at position t, at 2m and 2m + 1 (angles in
// double precision).
void FillRotaryTable(double base, const Tensor& table);

// Rotates q and k of every row of qkv [B, T, 3 * D] (fp32 or bf16) in place; v is left alone. Row t
// of each sequence is at position t, with table [>= T, head_size].
void RotaryForward(const Tensor& table, int64_t heads, const Tensor& qkv);

// The inverse rotation on the gradient of qkv.
void RotaryBackward(const Tensor& table, int64_t heads, const Tensor& dqkv);

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_ROTARY_H_
