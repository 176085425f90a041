// From the end of one branch to the start of the next, in one pass over rows that stay in cache:
//   X = gain * stream + dropout(delta);  kept = X;  Y = depth-weighted average;  out = LayerNorm(Y)
// Each part may be absent. The same bits as ResidualForward, Convert, DepthAverager::Forward and
// LayerNormForward one after the other, at about 2/3 of their time where few sources are read:
// between them the rows never leave the cache.
#ifndef DENSEFORMER_KERNELS_FUSED_ADD_NORM_H_
#define DENSEFORMER_KERNELS_FUSED_ADD_NORM_H_

#include <span>

#include "kernels/dropout.h"
#include "kernels/dwa/dwa.h"
#include "tensor/tensor.h"

namespace denseformer {

// The next LayerNorm (layernorm.h); out empty: none.
struct FusedNorm {
  Tensor weight, bias, out, mean, rstd;
};

struct FusedAddNorm {
  // The residual connection (residual.h); delta empty: X is there already.
  Tensor stream, delta, gain;
  Dropout dropout;
  Tensor x;     // [N, D] fp32; may alias stream
  Tensor kept;  // [N, D] fp32 or bf16: X for later averages; empty: not needed

  // The average after block `depth` (dwa.h); averager null: Y is X.
  DepthAverager* averager = nullptr;
  int depth = 0;
  std::span<const Tensor> history;
  Tensor y;  // [N, D] fp32; may alias x; without an averager x itself, and need not be given

  FusedNorm norm;
};

void FusedAddNormForward(const FusedAddNorm& pass);

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_FUSED_ADD_NORM_H_
