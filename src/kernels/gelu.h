// GELU, erf form: gelu(x) = x * Phi(x), Phi(x) = (1 + erf(x / sqrt 2)) / 2.
#ifndef DENSEFORMER_KERNELS_GELU_H_
#define DENSEFORMER_KERNELS_GELU_H_

#include "tensor/tensor.h"

namespace denseformer {

// x and y of the same shape and dtype (fp32 or bf16); y may alias x.
void GeluForward(const Tensor& x, const Tensor& y);

// dx = dy * (Phi(x) + x * phi(x)); all of the same dtype; dx may alias dy.
void GeluBackward(const Tensor& x, const Tensor& dy, const Tensor& dx);

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_GELU_H_
