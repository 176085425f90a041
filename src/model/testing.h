// Helpers of the tests that run a model; no part of the library.
#ifndef DENSEFORMER_MODEL_TESTING_H_
#define DENSEFORMER_MODEL_TESTING_H_

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "base/random.h"
#include "kernels/cross_entropy.h"
#include "model/backward.h"
#include "model/forward.h"
#include "model/model.h"

namespace denseformer {

// Weights far from the initial ones, so that no part of the model is close to linear or to the
// identity: matrices keep about the scale of their input, norms and gains lie around 1, alphas
// around the identity; the final norm makes up for the size of the embedding, so that logits are of
// size 1.
inline void RandomizeWeights(Model& model, uint64_t seed) {
  for (const Parameter& parameter : model.table().all()) {
    Random random(seed, HashName(parameter.name));
    const std::span<float> data =
        model.weights().subspan(parameter.offset, static_cast<size_t>(parameter.count()));
    float mean = 0, deviation = 0.3f;
    if (parameter.group == ParameterGroup::kEmbedding) {
      deviation = 1.0f;
    } else if (parameter.group == ParameterGroup::kAttention ||
               parameter.group == ParameterGroup::kMlp) {
      deviation = 0.6f / std::sqrt(static_cast<float>(parameter.shape[1]));
    } else if (parameter.group == ParameterGroup::kNorm ||
               parameter.group == ParameterGroup::kGain) {
      mean = 1.0f;
      if (parameter.name == "transformer.ln_f.weight") {
        mean /= std::sqrt(static_cast<float>(parameter.count()));
        deviation *= mean;
      }
    }
    const bool mixer_matrix = parameter.group == ParameterGroup::kMixer && parameter.matrix();
    if (mixer_matrix) deviation = 0.6f / std::sqrt(static_cast<float>(parameter.shape[1]));
    for (float& value : data) value = mean + deviation * random.Normal();
    if (parameter.name.starts_with("dwa_modules.alphas.")) {
      const size_t n = static_cast<size_t>(parameter.shape[1]);
      for (size_t last = n - 1; last < data.size(); last += n) data[last] += 1.0f;
    }
  }
  model.WeightsChanged();
}

// The same bits, NaN and the sign of zero included.
inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Sets the number of threads for a scope.
class ThreadsGuard {
 public:
  explicit ThreadsGuard(int threads) : before_(NumThreads()) { SetNumThreads(threads); }
  ~ThreadsGuard() { SetNumThreads(before_); }

 private:
  const int before_;
};

// Small, with awkward sizes.
inline ModelConfig SmallConfig(const std::string& dwa, bool gains = false, bool bias = false) {
  ModelConfig config;
  config.n_layer = 6;
  config.n_head = 3;
  config.n_embd = 24;
  config.vocab_size = 61;
  config.seq_len = 20;
  config.dwa = dwa;
  config.gains = gains;
  config.bias = bias;
  return config;
}

inline Model RandomModel(const ModelConfig& config, DType compute = DType::kF32) {
  Model model(config, compute, ModelUse::kTraining);
  RandomizeWeights(model, 1);
  return model;
}

// Random tokens and targets; every `ignore_every`-th target is ignored (0: none).
struct RandomBatch {
  std::vector<int32_t> tokens, targets;
  int64_t sequences, length;

  RandomBatch(const ModelConfig& config, int64_t sequences, int64_t length, uint64_t seed,
              int ignore_every = 0)
      : sequences(sequences), length(length) {
    Random random(seed, HashName("batch"));
    const uint64_t vocab_size = static_cast<uint64_t>(config.vocab_size);
    for (int64_t n = 0; n < sequences * length; ++n) {
      tokens.push_back(static_cast<int32_t>(random.Below(vocab_size)));
      const bool ignored = ignore_every > 0 && n % ignore_every == ignore_every - 1;
      targets.push_back(ignored ? kIgnoreTarget : static_cast<int32_t>(random.Below(vocab_size)));
    }
  }

  Batch batch() const { return {tokens, targets, sequences, length}; }
};

// Largest difference of two tensors relative to the largest value of `expected`; infinite where a
// value is not finite.
template <class Expected>
double RelativeError(std::span<const float> got, std::span<const Expected> expected) {
  double largest = 0, difference = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i]) || !std::isfinite(expected[i])) return INFINITY;
    largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
    difference = std::max(difference, std::abs(got[i] - static_cast<double>(expected[i])));
  }
  return difference == 0 ? 0 : difference / largest;
}

inline double Cosine(std::span<const float> a, std::span<const float> b) {
  double dot = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    dot += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return dot / std::sqrt(aa * bb);
}

// The part of a buffer of all parameters that belongs to one.
template <class T>
std::span<const T> Slice(std::span<const T> buffer, const Parameter& parameter) {
  return buffer.subspan(parameter.offset, static_cast<size_t>(parameter.count()));
}

// Forward and backward, from gradients of something else.
struct PassResult {
  double loss = 0;
  std::vector<float> gradients;  // laid out as model.gradients()
};
inline PassResult RunPass(const Model& model, const RandomBatch& batch, Activations& activations,
                          float scale = 1.0f) {
  for (const Parameter& p : model.table().all()) {
    std::fill_n(model.gradients().begin() + p.offset, p.count(), 7.0f);
  }
  PassResult result;
  result.loss = ForwardBackward(model, batch.batch(), DropoutOptions(), scale, Gradients::kReplace,
                                activations);
  result.gradients.assign(model.gradients().begin(), model.gradients().end());
  return result;
}
inline PassResult RunPass(const Model& model, const RandomBatch& batch) {
  Activations activations(model, batch.sequences, batch.length, ModelUse::kTraining);
  return RunPass(model, batch, activations);
}

inline std::vector<float> RunLogits(const Model& model, const RandomBatch& batch) {
  Activations activations(model, batch.sequences, batch.length, ModelUse::kInference);
  const int64_t rows = batch.sequences * batch.length, vocab_size = model.config().vocab_size;
  std::vector<float> logits(static_cast<size_t>(rows * vocab_size));
  ForwardLogits(model, batch.batch(), activations, Tensor(logits.data(), {rows, vocab_size}));
  return logits;
}

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_TESTING_H_
