// Token embedding: row lookup and its transpose.
#ifndef DENSEFORMER_KERNELS_EMBEDDING_H_
#define DENSEFORMER_KERNELS_EMBEDDING_H_

#include <cstdint>
#include <span>

#include "tensor/tensor.h"

namespace denseformer {

// out[n] = weight[tokens[n]]; weight [V, D] fp32, out [N, D] fp32. Tokens must be within [0, V)
// (the model checks them where they come in).
void EmbeddingForward(std::span<const int32_t> tokens, const Tensor& weight, const Tensor& out);

// dweight[tokens[n]] += dout[n], in the order of n whatever the number of threads.
void EmbeddingBackward(std::span<const int32_t> tokens, const Tensor& dout, const Tensor& dweight);

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_EMBEDDING_H_
