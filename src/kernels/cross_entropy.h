// Softmax cross-entropy on a chunk of logits; the head (head.h) calls it for one chunk of rows
// after the other, so that all logits never exist in memory.
#ifndef DENSEFORMER_KERNELS_CROSS_ENTROPY_H_
#define DENSEFORMER_KERNELS_CROSS_ENTROPY_H_

#include <cstdint>
#include <span>

#include "tensor/tensor.h"

namespace denseformer {

// A row with this target has no loss and no gradient.
inline constexpr int32_t kIgnoreTarget = -1;

// logits [N, V] fp32 or bf16. loss[n] = logsumexp(logits[n]) - logits[n][target]; 0 where ignored,
// NaN where a logit is NaN or +infinity. correct[n] = 1 where the largest logit (the first of
// equals) is the target's; 0 where ignored and where the loss is NaN; may be empty.
void CrossEntropyForward(const Tensor& logits, std::span<const int32_t> targets,
                         std::span<float> losses, std::span<uint8_t> correct);

// As above, and dlogits = (softmax(logits) - onehot(target)) * scale, 0 where ignored; dlogits fp32
// or bf16 [N, V] (fp32 may alias logits).
void CrossEntropyForwardBackward(const Tensor& logits, std::span<const int32_t> targets,
                                 float scale, std::span<float> losses, const Tensor& dlogits);

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_CROSS_ENTROPY_H_
