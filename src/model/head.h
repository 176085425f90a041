// The head: logits = ln_f wte^T and their cross-entropy, for one chunk of rows after the other.
#ifndef DENSEFORMER_MODEL_HEAD_H_
#define DENSEFORMER_MODEL_HEAD_H_

#include <cstdint>
#include <span>

#include "model/activations.h"
#include "model/model.h"

namespace denseformer {

// losses [N]; correct [N] or empty.
void HeadForward(const Model& model, Activations& activations, std::span<const int32_t> targets,
                 std::span<float> losses, std::span<uint8_t> correct);

// As HeadForward, and at once the gradient of scale * sum(losses): activations.dnorm gets the
// gradient of ln_f, the gradient of wte is replaced or added to. The logits are gone when this
// returns, so there is no separate backward call.
void HeadForwardBackward(const Model& model, Activations& activations,
                         std::span<const int32_t> targets, float scale, Gradients gradients,
                         std::span<float> losses);

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_HEAD_H_
