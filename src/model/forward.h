// Passes through the model: tokens to loss, tokens to logits, loss to gradients.
#ifndef DENSEFORMER_MODEL_FORWARD_H_
#define DENSEFORMER_MODEL_FORWARD_H_

#include <cstdint>
#include <functional>
#include <span>

#include "model/activations.h"
#include "model/model.h"

namespace denseformer {

// `sequences` rows of `length` tokens. targets[n] is the token that follows tokens[n], or
// kIgnoreTarget; empty where no loss is asked for.
struct Batch {
  std::span<const int32_t> tokens;
  std::span<const int32_t> targets;
  int64_t sequences = 0;
  int64_t length = 0;
};

// Dropout of a training step; off by default and always off in evaluation.
struct DropoutOptions {
  float probability = 0;
  uint64_t seed = 0;
  uint64_t step = 0;
};

// Sees the depth outputs as they are made: X_i and Y_i in fp32 [N, D], for i from 0 to d.
using DepthObserver = std::function<void(int depth, const Tensor& x, const Tensor& y)>;

// Throws Error (kInvalid) where a token or a target is outside the vocabulary, or a sequence is
// longer than the model's or the activations' length; the message names the position.
void CheckBatch(const Model& model, const Batch& batch);

// Mean loss over the targets that are not ignored (0 where there are none). losses [N] and correct
// [N] (1 where the most probable token is the target) are filled where not empty.
double ForwardLoss(const Model& model, const Batch& batch, Activations& activations,
                   std::span<float> losses = {}, std::span<uint8_t> correct = {},
                   const DepthObserver& observer = {});

// Logits of every position, [N, V] fp32. For tests and short texts: `logits` is as large as that.
void ForwardLogits(const Model& model, const Batch& batch, Activations& activations,
                   const Tensor& logits, const DepthObserver& observer = {});

// Forward and backward: returns the mean loss; the gradient of (loss * scale) takes the place of
// model.gradients() or is added to it. Needs a trainable model and activations for training.
enum class Gradients { kReplace, kAdd };
double ForwardBackward(const Model& model, const Batch& batch, const DropoutOptions& dropout,
                       float scale, Gradients gradients, Activations& activations);

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_FORWARD_H_
