// Causal self-attention: out = softmax(q k^T / sqrt(head_size), j <= i) v for each head.
//
// Works on one (sequence, head) at a time with scores of a block of rows in cache: the T x T scores
// of all heads never exist in memory. The backward pass recomputes the probabilities from the
// log-sum-exp of each row.
#ifndef DENSEFORMER_KERNELS_ATTENTION_ATTENTION_H_
#define DENSEFORMER_KERNELS_ATTENTION_ATTENTION_H_

#include "kernels/dropout.h"
#include "tensor/tensor.h"

namespace denseformer {

// qkv [B, T, 3 * D]: q, k, v of a row contiguous, heads contiguous in each, already rotated;
// out [B, T, D] of the same dtype (fp32 or bf16); lse [B, H, T] fp32, log-sum-exp of the scaled
// scores; empty where no backward pass follows. Dropout acts on the probabilities; its index is ((b
// * H + h) * T + i) * T + j.
void AttentionForward(const Tensor& qkv, int64_t heads, const Dropout& dropout, const Tensor& out,
                      const Tensor& lse);

// dqkv [B, T, 3 * D] of the dtype of qkv, overwritten.
void AttentionBackward(const Tensor& qkv, const Tensor& out, const Tensor& lse, const Tensor& dout,
                       int64_t heads, const Dropout& dropout, const Tensor& dqkv);

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_ATTENTION_ATTENTION_H_
