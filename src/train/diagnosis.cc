#include "train/diagnosis.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "model/mixer.h"

namespace denseformer {
namespace {

// The first element that is not finite, or -1.
int64_t FirstBad(const float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) return i;
  }
  return -1;
}

std::string Describe(const std::string& what, const float* values, int64_t count) {
  const int64_t at = FirstBad(values, count);
  return at < 0 ? "" : fmt::format("{} (element {} is {})", what, at, values[at]);
}

float Largest(const float* values, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(values[i]));
  return largest;
}

std::string BadWeight(const Model& model) {
  for (const Parameter& p : model.table().all()) {
    const std::string found =
        Describe("weight " + p.name, model.weights().data() + p.offset, p.count());
    if (!found.empty()) return found;
  }
  return "";
}

std::string BadActivation(const Model& model, const Batch& batch, Activations& activations) {
  std::string found;
  float largest = 0;  // of Y_d, whose squares the last LayerNorm sums
  const DepthObserver observer = [&](int depth, const Tensor& x, const Tensor& y) {
    if (!found.empty()) return;
    const std::string source = depth == 0 ? "embedding of the batch (X_0)"
                                          : fmt::format("output of block {} (X_{})", depth, depth);
    found = Describe(source, x.f32(), x.count());
    if (!found.empty()) return;
    found = Describe(fmt::format("depth-weighted average after block {} (Y_{})", depth, depth),
                     y.f32(), y.count());
    for (int c = 1; found.empty() && c < activations.streams(depth); ++c) {
      const Tensor& stream = activations.y(depth, c);
      found = Describe(fmt::format("depth-weighted average after block {} of stream {}", depth,
                                   StreamName(model.mixer().streams[static_cast<size_t>(c)])),
                       stream.f32(), stream.count());
    }
    if (depth == model.config().n_layer) largest = Largest(y.f32(), y.count());
  };
  std::vector<float> losses(batch.tokens.size());
  ForwardLoss(model, batch, activations, losses, {}, observer);
  if (!found.empty()) return found;
  return Describe(
      fmt::format("loss of a token, after Y_{} up to {:.3g}", model.config().n_layer, largest),
      losses.data(), static_cast<int64_t>(losses.size()));
}

std::string BadGradient(const Model& model) {
  const std::span<const Parameter> all = model.table().all();
  for (auto p = all.rbegin(); p != all.rend(); ++p) {
    const std::string found =
        Describe("gradient of " + p->name, model.gradients().data() + p->offset, p->count());
    if (!found.empty()) return found;
  }
  return "";
}

}  // namespace

std::string FirstBadTensor(const Model& model, const Batch& batch, Activations& activations) {
  std::string found = BadWeight(model);
  if (found.empty()) found = BadActivation(model, batch, activations);
  if (found.empty()) found = BadGradient(model);
  return found.empty() ? kNoBadTensor : found;
}

std::string FirstBadParameter(const Model& model) {
  std::string found = BadWeight(model);
  if (found.empty()) found = BadGradient(model);
  return found.empty() ? kNoBadTensor : found;
}

}  // namespace denseformer
