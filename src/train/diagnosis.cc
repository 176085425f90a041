#include "train/diagnosis.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/convert.h"
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

// The same of a tensor of any type.
std::string Describe(const std::string& what, const Tensor& tensor) {
  if (tensor.dtype() == DType::kF32) return Describe(what, tensor.f32(), tensor.count());
  std::vector<float> values(static_cast<size_t>(tensor.count()));
  Convert(tensor, Tensor(values.data(), tensor.shape()));
  return Describe(what, values.data(), tensor.count());
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

// The weights a_sj of the module after block `depth`, [N, C n].
std::string BadMixerWeights(const Model& model, int depth, Activations& a) {
  if (model.mixer().plain() || !model.pattern().has_module(depth)) return "";
  const int64_t count =
      a.streams(depth) * static_cast<int64_t>(model.pattern().sources(depth).size());
  return Describe(fmt::format("weights of the mixer after block {}", depth),
                  a.mix(depth).weights.f32(), a.rows() * count);
}

// From Y_d, whose values go up to `largest`, to the loss.
std::string BadHead(const Model& model, std::span<const float> losses, float largest,
                    Activations& a) {
  std::string found = Describe(
      fmt::format("final LayerNorm, of Y_{} up to {:.3g}", model.config().n_layer, largest),
      a.ln_f);
  for (int64_t row = 0; found.empty() && row < a.rows(); row += a.logits.rows()) {
    const int64_t n = std::min(a.logits.rows(), a.rows() - row);
    LinearForward(a.ln_f.Rows(row, n), model.packed_head(), Tensor(), a.logits.Rows(0, n));
    found = Describe(fmt::format("logits of the tokens from {} on", row), a.logits.Rows(0, n));
  }
  if (!found.empty()) return found;
  return Describe("loss of a token", losses.data(), static_cast<int64_t>(losses.size()));
}

std::string BadActivation(const Model& model, const Batch& batch, Activations& activations) {
  std::string found;
  float largest = 0;  // of Y_d, whose squares the last LayerNorm sums
  const DepthObserver observer = [&](int depth, const Tensor& x, const Tensor& y) {
    if (!found.empty()) return;
    const std::string source = depth == 0 ? "embedding of the batch (X_0)"
                                          : fmt::format("output of block {} (X_{})", depth, depth);
    found = Describe(source, x);
    if (found.empty()) found = BadMixerWeights(model, depth, activations);
    if (!found.empty()) return;
    found = Describe(fmt::format("depth-weighted average after block {} (Y_{})", depth, depth), y);
    for (int c = 1; found.empty() && c < activations.streams(depth); ++c) {
      const Tensor& stream = activations.y(depth, c);
      found = Describe(fmt::format("depth-weighted average after block {} of stream {}", depth,
                                   StreamName(model.mixer().streams[static_cast<size_t>(c)])),
                       stream);
    }
    if (depth == model.config().n_layer) largest = Largest(y.f32(), y.count());
  };
  std::vector<float> losses(batch.tokens.size());
  ForwardLoss(model, batch, activations, losses, {}, observer);
  return found.empty() ? BadHead(model, losses, largest, activations) : found;
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
