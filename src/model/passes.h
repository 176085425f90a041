// What the forward and the backward pass share.
#ifndef DENSEFORMER_MODEL_PASSES_H_
#define DENSEFORMER_MODEL_PASSES_H_

#include <cstdint>
#include <span>

#include "base/function_ref.h"
#include "kernels/dropout.h"
#include "model/forward.h"

namespace denseformer {

// Where dropout acts; each place of each block has its own stream of random numbers.
enum class DropoutPlace { kEmbedding, kAttention, kProjection, kMlp };

inline Dropout PlaceDropout(const DropoutOptions& options, int block, DropoutPlace place) {
  return {
      options.probability, options.seed,
      (options.step << 20) | (static_cast<uint64_t>(block) << 2) | static_cast<uint64_t>(place)};
}

// Attention of block i: from b.ln_1 by b.qkv to b.attention. The only place where a row has a
// position and sees other rows, so the only difference between a pass over whole sequences and one
// on a KV cache.
using Attend = FunctionRef<void(int i, BlockActivations& b)>;

// Tokens to LayerNorm(Y_d) in activations.ln_f, with the shape that the activations have. Nothing
// is checked here.
void ForwardRows(const Model& model, std::span<const int32_t> tokens, const DropoutOptions& dropout,
                 Attend attend, Activations& activations, const DepthObserver& observer);

// The same over whole sequences; checks the batch.
void ForwardToNorm(const Model& model, const Batch& batch, const DropoutOptions& dropout,
                   Activations& activations, const DepthObserver& observer);

// Fills activations.block(i) again from Y_{i-1}, with the same bits as in the forward pass: all
// that the backward pass of block i reads. activations.delta is overwritten.
void RecomputeBlock(const Model& model, int i, const DropoutOptions& dropout,
                    Activations& activations);

// Targets that are not ignored.
int64_t CountTargets(std::span<const int32_t> targets);

// Sum of the losses, in order and in double precision, over the number of targets; 0 for no
// targets.
double MeanLoss(std::span<const float> losses, int64_t targets);

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_PASSES_H_
