// The residual connection: y = gain * x + dropout(delta).
#ifndef DENSEFORMER_KERNELS_RESIDUAL_H_
#define DENSEFORMER_KERNELS_RESIDUAL_H_

#include "kernels/dropout.h"
#include "tensor/tensor.h"

namespace denseformer {

// x, y [N, D] fp32; delta [N, D] fp32 or bf16; gain [1] fp32 or empty (1). y may alias x.
void ResidualForward(const Tensor& x, const Tensor& delta, const Tensor& gain,
                     const Dropout& dropout, const Tensor& y);

struct ResidualGradients {
  Tensor dx;       // [N, D] fp32 = gain * dy; may alias dy (with no gain nothing is written then)
  Tensor ddelta;   // [N, D] fp32 or bf16 = dropout mask * dy
  Tensor dgain;    // [1] fp32, added to: sum of dy * x; empty: no gain
  Tensor scratch;  // [kResidualScratch] fp32: partial sums over fixed partitions of the rows
};
inline constexpr int64_t kResidualScratch = 256;

void ResidualBackward(const Tensor& dy, const Tensor& x, const Tensor& gain, const Dropout& dropout,
                      const ResidualGradients& gradients);

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_RESIDUAL_H_
