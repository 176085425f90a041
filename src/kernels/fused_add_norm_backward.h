// The backward passes of a LayerNorm (layernorm.h) and of the residual connection (residual.h)
// whose result it reads, in one pass over the rows: what LayerNormBackward and then
// ResidualBackward would give, with the row between them in cache. fused_add_norm.h is the same for
// the forward pass.
#ifndef DENSEFORMER_KERNELS_FUSED_ADD_NORM_BACKWARD_H_
#define DENSEFORMER_KERNELS_FUSED_ADD_NORM_BACKWARD_H_

#include "kernels/dropout.h"
#include "tensor/tensor.h"

namespace denseformer {

struct FusedAddNormGradients {
  // LayerNorm: as in LayerNormBackward.
  Tensor dout;       // [N, D] fp32 or bf16
  Tensor y;          // [N, D] fp32, its input
  Tensor weight;     // [D]
  Tensor mean;       // [N]
  Tensor rstd;       // [N]
  Tensor dresidual;  // [N, D] fp32, the gradient of y that bypasses the norm; empty: none
  Tensor dweight;    // [D] fp32, added to
  Tensor dbias;      // [D] fp32, added to; empty: none

  // Residual connection that made y: as in ResidualBackward.
  Tensor x;         // [N, D] fp32; needed with dgain
  Tensor gain;      // [1] fp32 or empty (1)
  Dropout dropout;  // of delta
  Tensor dx;        // [N, D] fp32 = gain * dy; may alias dresidual
  Tensor ddelta;    // [N, D] fp32 or bf16 = dropout mask * dy
  Tensor dgain;     // [1] fp32, added to; empty: none

  Tensor scratch;  // [FusedAddNormScratch(D)] fp32
};

int64_t FusedAddNormScratch(int64_t cols);

void FusedAddNormBackward(const FusedAddNormGradients& pass);

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_FUSED_ADD_NORM_BACKWARD_H_
