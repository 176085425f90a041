// Where a number that is not finite comes from.
#ifndef DENSEFORMER_TRAIN_DIAGNOSIS_H_
#define DENSEFORMER_TRAIN_DIAGNOSIS_H_

#include <string>

#include "model/forward.h"

namespace denseformer {

inline constexpr const char* kNoBadTensor = "no tensor";

// Names the first tensor with a NaN or an infinity on the way of a step: weights; then by depth the
// outputs of the blocks, the weights of mixers and their averages; the final LayerNorm, the logits
// and the loss; then gradients in the order of the backward pass.
// kNoBadTensor where all are finite. Gradients are left as they are.
std::string FirstBadTensor(const Model& model, const Batch& batch, Activations& activations);

// The same of the weights and gradients of a stage alone, whose passes need its neighbors.
std::string FirstBadParameter(const Model& model);

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_DIAGNOSIS_H_
