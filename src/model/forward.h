// The forward pass: tokens to loss, tokens to logits. backward.h mirrors it.
//
// ForwardLoss and ForwardLogits run whole sequences. Below them the pass comes in parts, for passes
// on a KV cache (decode.h) and for stages that hold some of the blocks (stage_pass.h):
//   InputForward, BlocksForward (1..d), head (head.h)
// Each part leaves what the next one reads in the activations.
#ifndef DENSEFORMER_MODEL_FORWARD_H_
#define DENSEFORMER_MODEL_FORWARD_H_

#include <cstdint>
#include <functional>
#include <span>

#include "base/function_ref.h"
#include "model/activations.h"
#include "model/batch.h"
#include "model/dropout_streams.h"
#include "model/model.h"

namespace denseformer {

// Sees the depth outputs as they are computed: X_i and Y_i in fp32 [N, D], for i from 0 to d.
using DepthObserver = std::function<void(int depth, const Tensor& x, const Tensor& y)>;

// Mean loss over the targets that are not ignored (0 where there are none). losses [N] and correct
// [N] (1 where the most probable token is the target) are filled where not empty. Throws what
// CheckBatch throws.
double ForwardLoss(const Model& model, const Batch& batch, Activations& activations,
                   std::span<float> losses = {}, std::span<uint8_t> correct = {},
                   const DepthObserver& observer = {});

// Logits of every position, [N, V] fp32. For tests and short texts: `logits` is as large as that.
void ForwardLogits(const Model& model, const Batch& batch, Activations& activations,
                   const Tensor& logits, const DepthObserver& observer = {});

// Tokens to LayerNorm(Y_d) in activations.ln_f over whole sequences; checks the batch.
void ForwardSequences(const Model& model, const Batch& batch, const DropoutOptions& dropout,
                      Activations& activations, const DepthObserver& observer);

// Attention of block i: from b.ln_1 by b.qkv to b.attention. The only place where a row has a
// position and sees other rows, so the only difference between a pass over whole sequences and one
// on a KV cache.
using Attend = FunctionRef<void(int i, BlockActivations& b)>;

// Tokens to LayerNorm(Y_d) in activations.ln_f, with the shape that the activations have. Nothing
// is checked here.
void ForwardRows(const Model& model, std::span<const int32_t> tokens, const DropoutOptions& dropout,
                 Attend attend, Activations& activations, const DepthObserver& observer);

// X_0 of the tokens, Y_0, and the LayerNorm of block 1. Starts a pass.
void InputForward(const Model& model, std::span<const int32_t> tokens,
                  const DropoutOptions& dropout, Activations& activations,
                  const DepthObserver& observer);

// In place of InputForward on a later stage of a pipeline: the LayerNorm of its first block from Y
// of the cut, and X of the cut in the history where that is the same. Starts a pass.
void StreamForward(const Model& model, Activations& activations);

// Blocks first..last: X_i, Y_i, and the LayerNorm that reads Y_i, from Y_{first-1} and its
// LayerNorm.
void BlocksForward(const Model& model, BlockRange range, const DropoutOptions& dropout,
                   Attend attend, Activations& activations, const DepthObserver& observer);

// The same over whole sequences.
void BlocksForward(const Model& model, BlockRange range, const DropoutOptions& dropout,
                   Activations& activations);

// Fills activations.block(i) again from Y_{i-1}, with the same bits as in the forward pass: all
// that the backward pass of block i reads. activations.delta is overwritten.
void RecomputeBlock(const Model& model, int i, const DropoutOptions& dropout,
                    Activations& activations);

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_FORWARD_H_
