#include "model/head.h"

#include <algorithm>

#include "kernels/cross_entropy.h"

namespace denseformer {
namespace {

// Calls work(begin, n) for every chunk of rows that fits into activations.logits.
template <class F>
void ForEachChunk(const Activations& activations, F work) {
  const int64_t rows = activations.rows(), chunk = activations.logits.rows();
  for (int64_t begin = 0; begin < rows; begin += chunk) work(begin, std::min(chunk, rows - begin));
}

}  // namespace

void HeadForward(const Model& model, Activations& activations, std::span<const int32_t> targets,
                 std::span<float> losses, std::span<uint8_t> correct) {
  ForEachChunk(activations, [&](int64_t begin, int64_t n) {
    const Tensor logits = activations.logits.Rows(0, n);
    LinearForward(activations.ln_f.Rows(begin, n), model.packed_head(), Tensor(), logits);
    CrossEntropyForward(logits, targets.subspan(begin, n), losses.subspan(begin, n),
                        correct.empty() ? correct : correct.subspan(begin, n));
  });
}

void HeadForwardBackward(const Model& model, Activations& activations,
                         std::span<const int32_t> targets, float scale, Gradients gradients,
                         std::span<float> losses) {
  ForEachChunk(activations, [&](int64_t begin, int64_t n) {
    const Tensor input = activations.ln_f.Rows(begin, n);
    const Tensor logits = activations.logits.Rows(0, n), dlogits = activations.dlogits.Rows(0, n);
    LinearForward(input, model.packed_head(), Tensor(), logits);
    CrossEntropyForwardBackward(logits, targets.subspan(begin, n), scale, losses.subspan(begin, n),
                                dlogits);
    LinearBackwardInput(dlogits, model.packed_head(), activations.dnorm.Rows(begin, n));
    LinearBackwardWeight(dlogits, input, model.gradient_tensors().wte,
                         /*add=*/gradients == Gradients::kAdd || begin > 0);
  });
}

}  // namespace denseformer
