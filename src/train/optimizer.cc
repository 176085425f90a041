#include "train/optimizer.h"

#include <algorithm>
#include <limits>

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

Optimizer::Optimizer(Model& model, const TrainOptions& options, const Moments& moments,
                     std::span<const Range> owned)
    : model_(model), options_(options), all_(owned.empty()), moments_(moments) {
  DF_CHECK(model.trainable());
  int64_t count = 0;
  for (const Range& range : owned) {
    for (const Parameter& p : model.table().all()) {
      const Range part = Intersect(range, {p.offset, p.offset + p.count()});
      if (part.size() == 0) continue;
      pieces_.push_back({&p, part.begin, part.end, count + part.begin - range.begin});
    }
    count += range.size();
  }
  const size_t size = all_ ? model.weights().size() : static_cast<size_t>(count);
  if (moments_.first.empty()) {
    first_ = Storage(size * sizeof(float));
    second_ = Storage(size * sizeof(float));
    moments_ = {Floats(first_).first(size), Floats(second_).first(size)};
  }
  DF_CHECK(moments_.first.size() == size && moments_.second.size() == size);
}

double Optimizer::SquaredGradientNorm(int64_t step, double matrix_squares) {
  const std::span<float> gradients = model_.gradients();
  for (const Parameter& p : model_.table().all()) {
    if (!Frozen(p, step)) continue;
    std::fill_n(gradients.begin() + p.offset, p.count(), 0.0f);
    // The backward pass has squared it with the others.
    if (p.matrix()) matrix_squares = std::numeric_limits<double>::quiet_NaN();
  }
  if (all_) return denseformer::SquaredGradientNorm(model_, matrix_squares);
  double sum = 0;
  for (const Piece& piece : pieces_) {
    if (!piece.parameter->counted) continue;
    sum += SumOfSquares(gradients.subspan(static_cast<size_t>(piece.begin),
                                          static_cast<size_t>(piece.end - piece.begin)));
  }
  return sum;
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
  const auto change = [&](const Parameter& p, int64_t begin, int64_t end, int64_t moment) {
    if (Frozen(p, step)) return;
    AdamWStep adamw = all;
    adamw.decay = DecayOf(p, options_);
    adamw.step = p.mixes() ? dwa_updates_ : updates_;
    if (p.mixes()) adamw.rate = static_cast<float>(rate * options_.mixer_lr);
    const size_t at = static_cast<size_t>(begin), count = static_cast<size_t>(end - begin);
    const size_t own = static_cast<size_t>(moment);
    AdamWUpdate(adamw, model_.weights().subspan(at, count), model_.gradients().subspan(at, count),
                moments_.first.subspan(own, count), moments_.second.subspan(own, count));
  };
  if (all_) {
    model_.ChangeWeights(
        [&](const Parameter& p, int64_t begin, int64_t end) { change(p, begin, end, begin); });
  }
  for (const Piece& piece : pieces_) change(*piece.parameter, piece.begin, piece.end, piece.moment);
}

void Optimizer::SetUpdates(int64_t updates, int64_t dwa_updates) {
  updates_ = updates;
  dwa_updates_ = dwa_updates;
}

}  // namespace denseformer
