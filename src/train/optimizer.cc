#include "train/optimizer.h"

#include <algorithm>
#include <cmath>

#include "kernels/adamw.h"

namespace denseformer {
namespace {

bool Decays(const Parameter& parameter, const TrainOptions& options) {
  if (parameter.group == ParameterGroup::kDwa && !options.decay_dwa) return false;
  if (parameter.group == ParameterGroup::kGain && !options.decay_gains) return false;
  return parameter.decay;
}

std::span<float> Floats(const Storage& storage) {
  return {static_cast<float*>(storage.data()), storage.bytes() / sizeof(float)};
}

}  // namespace

Optimizer::Optimizer(Model& model, const TrainOptions& options)
    : model_(model),
      options_(options),
      first_(model.weights().size_bytes()),
      second_(model.weights().size_bytes()) {
  DF_CHECK(model.trainable());
  const std::span<const Parameter> all = model.table().all();
  for (size_t p = 0; p < all.size(); ++p) {
    // With the zeros between it and the next parameter: an update leaves them 0.
    const int64_t end = p + 1 < all.size() ? all[p + 1].offset : model.table().buffer_size();
    const Range range = {all[p].offset, end, Decays(all[p], options),
                         all[p].group == ParameterGroup::kDwa};
    if (!ranges_.empty() && ranges_.back().decays == range.decays &&
        ranges_.back().dwa == range.dwa) {
      ranges_.back().end = end;
    } else {
      ranges_.push_back(range);
    }
  }
}

double Optimizer::GradientNorm(int64_t step) {
  const std::span<float> gradients = model_.gradients();
  for (const Range& range : ranges_) {
    if (!Frozen(range, step)) continue;
    std::fill(gradients.begin() + range.begin, gradients.begin() + range.end, 0.0f);
  }
  return std::sqrt(SumOfSquares(gradients));
}

void Optimizer::Update(int64_t step, double rate, double gradient_scale) {
  ++updates_;
  if (step >= options_.dwa_start) ++dwa_updates_;
  AdamWStep adamw;
  adamw.rate = static_cast<float>(rate);
  adamw.beta1 = static_cast<float>(options_.beta1);
  adamw.beta2 = static_cast<float>(options_.beta2);
  adamw.epsilon = static_cast<float>(options_.epsilon);
  adamw.gradient_scale = static_cast<float>(gradient_scale);
  for (const Range& range : ranges_) {
    const size_t begin = static_cast<size_t>(range.begin);
    const size_t count = static_cast<size_t>(range.end - range.begin);
    const std::span<float> gradients = model_.gradients().subspan(begin, count);
    if (Frozen(range, step)) {
      std::fill(gradients.begin(), gradients.end(), 0.0f);
      continue;
    }
    adamw.decay = range.decays ? static_cast<float>(options_.weight_decay) : 0.0f;
    adamw.step = range.dwa ? dwa_updates_ : updates_;
    AdamWUpdate(adamw, model_.weights().subspan(begin, count), gradients,
                Floats(first_).subspan(begin, count), Floats(second_).subspan(begin, count));
  }
  model_.WeightsChanged();
}

void Optimizer::DropGradients() {
  std::fill(model_.gradients().begin(), model_.gradients().end(), 0.0f);
}

Moments Optimizer::moments() { return {Floats(first_), Floats(second_)}; }

void Optimizer::SetUpdates(int64_t updates, int64_t dwa_updates) {
  updates_ = updates;
  dwa_updates_ = dwa_updates;
}

}  // namespace denseformer
