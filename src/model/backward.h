// The backward pass, the mirror of forward.h: loss to gradients.
//
// ForwardBackward runs whole sequences. Below it the pass comes in the parts of forward.h, in
// reverse, for stages that hold some of the blocks:
//   head (head.h), HeadNormBackward, BlocksBackward (d..1), InputBackward
#ifndef DENSEFORMER_MODEL_BACKWARD_H_
#define DENSEFORMER_MODEL_BACKWARD_H_

#include <cstdint>
#include <functional>
#include <span>

#include "model/activations.h"
#include "model/batch.h"
#include "model/dropout_streams.h"
#include "model/forward.h"
#include "model/model.h"

namespace denseformer {

// Called after the backward pass of a block: the gradients of its own parameters (not those of the
// averages) are final for this pass. Blocks come from the last to the first.
using BlockDone = std::function<void(int block)>;

// Forward and backward: returns the mean loss; the gradient of (loss * scale) replaces
// model.gradients() or is added to it. A share of a pass gives its part of both: their sums over
// the processes are those of the pass. Needs a trainable model and activations for training. Throws
// what CheckBatch throws, and kInvalid where the batch has no targets.
double ForwardBackward(const Model& model, const Batch& batch, const DropoutOptions& dropout,
                       float scale, Gradients gradients, Activations& activations,
                       const BlockDone& block_done = {});

// Where the gradient of Y_i goes: kept for the averages where depth i has a module, else into dx.
const Tensor& DyPlace(const Model& model, int i, Activations& activations);

// Before the parts of a pass: with kReplace the gradients of vectors are set to 0 (those of
// matrices are stored by the GEMMs that compute them).
void StartBackward(const Model& model, Gradients gradients, Activations& activations);

// The head (head.h): returns the mean loss; the gradient of (loss * scale) is in activations.dnorm.
double HeadLossBackward(const Model& model, const Batch& batch, float scale, Gradients gradients,
                        Activations& activations);

// The gradient of ln_f in activations.dnorm -> dY_d.
void HeadNormBackward(const Model& model, Activations& activations);

// dY_last -> dY_{first-1}, and the gradients of the blocks' parameters and of the averages. The
// forward pass of block `last` must have been the newest one where activations are recomputed.
void BlocksBackward(const Model& model, BlockRange range, const DropoutOptions& dropout,
                    Gradients gradients, Activations& activations,
                    const BlockDone& block_done = {});

// dY_0 -> the gradient of the embedding.
void InputBackward(const Model& model, std::span<const int32_t> tokens,
                   const DropoutOptions& dropout, Gradients gradients, Activations& activations);

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_BACKWARD_H_
