#include "train/optimizer.h"

#include <algorithm>

#include "kernels/adamw.h"
#include "model/gradient_norm.h"

namespace denseformer {
namespace {

float DecayOf(const Parameter& parameter, const TrainOptions& options) {
  if (parameter.group == ParameterGroup::kMixer) {
    return static_cast<float>(options.mixer_weight_decay);
  }
  if (parameter.group == ParameterGroup::kDwa && !options.decay_dwa) return 0;
  if (parameter.group == ParameterGroup::kGain && !options.decay_gains) return 0;
  return parameter.decay ? static_cast<float>(options.weight_decay) : 0.0f;
}

std::span<float> Floats(const Storage& storage) {
  return {static_cast<float*>(storage.data()), storage.bytes() / sizeof(float)};
}

}  // namespace

Optimizer::Optimizer(Model& model, const TrainOptions& options, const Moments& moments)
    : model_(model), options_(options), moments_(moments) {
  DF_CHECK(model.trainable());
  if (moments_.first.empty()) {
    first_ = Storage(model.weights().size_bytes());
    second_ = Storage(model.weights().size_bytes());
    moments_ = {Floats(first_), Floats(second_)};
  }
  DF_CHECK(moments_.first.size() == model.weights().size());
  DF_CHECK(moments_.second.size() == model.weights().size());
}

double Optimizer::SquaredGradientNorm(int64_t step, double matrix_squares) {
  const std::span<float> gradients = model_.gradients();
  for (const Parameter& p : model_.table().all()) {
    if (Frozen(p, step)) std::fill_n(gradients.begin() + p.offset, p.count(), 0.0f);
  }
  return denseformer::SquaredGradientNorm(model_, matrix_squares);
}

void Optimizer::Update(int64_t step, double rate, double gradient_scale) {
  ++updates_;
  if (step >= options_.dwa_start) ++dwa_updates_;
  AdamWStep all;
  all.rate = static_cast<float>(rate);
  all.beta1 = static_cast<float>(options_.beta1);
  all.beta2 = static_cast<float>(options_.beta2);
  all.epsilon = static_cast<float>(options_.epsilon);
  all.gradient_scale = static_cast<float>(gradient_scale);
  model_.ChangeWeights([&](const Parameter& p, int64_t begin, int64_t end) {
    if (Frozen(p, step)) return;
    AdamWStep adamw = all;
    adamw.decay = DecayOf(p, options_);
    adamw.step = p.mixes() ? dwa_updates_ : updates_;
    if (p.mixes()) adamw.rate = static_cast<float>(rate * options_.mixer_lr);
    const size_t at = static_cast<size_t>(begin), count = static_cast<size_t>(end - begin);
    AdamWUpdate(adamw, model_.weights().subspan(at, count), model_.gradients().subspan(at, count),
                moments_.first.subspan(at, count), moments_.second.subspan(at, count));
  });
}

void Optimizer::SetUpdates(int64_t updates, int64_t dwa_updates) {
  updates_ = updates;
  dwa_updates_ = dwa_updates;
}

}  // namespace denseformer
