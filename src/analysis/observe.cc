#include "analysis/observe.h"

#include <algorithm>
#include <vector>

#include "data/batches.h"
#include "model/forward.h"

namespace denseformer {

int64_t ObserveDepths(const Model& model, const TokenFile& file, int64_t most_tokens,
                      SeeDepth see) {
  constexpr int64_t kWindows = 8;  // in a batch
  const int64_t length = std::min<int64_t>(model.config().seq_len, file.size() - 1);
  const EvalWindows windows(file, length);
  // Whole windows only: a padded row would count as a token.
  const int64_t whole = std::max<int64_t>(1, windows.targets() / length);
  const int64_t wanted = std::clamp<int64_t>(most_tokens / length, 1, whole);
  Activations activations(model, std::min(kWindows, wanted), length, ModelUse::kInference);
  std::vector<int32_t> inputs, targets;
  std::vector<float> losses;
  for (int64_t first = 0; first < wanted; first += kWindows) {
    const int64_t count = std::min(kWindows, wanted - first), rows = count * length;
    inputs.resize(rows);
    targets.resize(rows);
    losses.resize(rows);
    windows.Fill(first, count, inputs.data(), targets.data());
    ForwardLoss(model, {inputs, targets, count, length}, activations, losses, {},
                [&](int i, const Tensor& x, const Tensor& y) { see(i, x, y, activations); });
  }
  return wanted * length;
}

}  // namespace denseformer
