#include "infer/depth_view.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "infer/language_model.h"
#include "infer/sampler.h"
#include "kernels/layernorm.h"
#include "kernels/rmsnorm.h"
#include "model/forward.h"
#include "model/mixer.h"
#include "tensor/storage.h"

namespace denseformer {
namespace {

using Row = std::vector<double>;

double Norm(const Row& row) {
  double sum = 0;
  for (const double value : row) sum += value * value;
  return std::sqrt(sum);
}

// 1 / rms.
double Rstd(const Row& row) {
  const double norm = Norm(row);
  return 1 / std::sqrt(norm * norm / static_cast<double>(row.size()) + kRmsNormEpsilon);
}

Row RowOf(const Tensor& tensor, int64_t row) {
  const float* begin = tensor.f32() + row * tensor.cols();
  return {begin, begin + tensor.cols()};
}

// The outputs of one token as they are computed, and the modules that read them.
class Watcher {
 public:
  Watcher(const Model& model, Activations& activations) : model_(model), a_(activations) {}

  void Observe(int i, const Tensor& x, const Tensor& y) {
    const int64_t last = x.rows() - 1;
    x_.push_back(RowOf(x, last));
    if (model_.pattern().has_module(i)) {
      for (int c = 0; c < a_.streams(i); ++c) modules.push_back(View(i, c, last));
    }
    y_.push_back(RowOf(y, last));
  }

  const std::vector<Row>& x() const { return x_; }
  const std::vector<Row>& y() const { return y_; }
  std::vector<DepthModuleView> modules;

 private:
  struct Part {
    DepthContribution contribution;
    Row vector;
  };

  // V_j = X_j - Y_{j-1}.
  Row Increment(int j) const {
    Row row = x_[static_cast<size_t>(j)];
    for (size_t e = 0; j > 0 && e < row.size(); ++e) row[e] -= y_[static_cast<size_t>(j) - 1][e];
    return row;
  }

  // a_sj of stream c for the token in row `row`.
  std::vector<double> Weights(int i, int c, int64_t row) const {
    const size_t n = model_.pattern().sources(i).size();
    const float* weights =
        model_.mixer().plain()
            ? model_.tensors().alphas[static_cast<size_t>(i)].f32()
            : a_.mix(i).weights.f32() + (row * a_.streams(i) + c) * static_cast<int64_t>(n);
    return {weights, weights + n};
  }

  std::vector<Part> Parts(int i, int c, int64_t row) const {
    const MixerSpec& mixer = model_.mixer();
    const std::vector<int>& sources = model_.pattern().sources(i);
    const std::vector<double> weights = Weights(i, c, row);
    const MixerTensors& tensors = model_.tensors().mixers[static_cast<size_t>(i)];
    const double gate = tensors.gate.empty() ? 1 : tensors.gate.f32()[c];
    std::vector<Part> parts;
    for (size_t k = 0; k < sources.size(); ++k) {
      const int j = sources[k];
      const bool increment = mixer.form->increments;
      Row vector = increment ? Increment(j) : x_[static_cast<size_t>(j)];
      double weight = gate * weights[k];
      if (mixer.prepost) weight *= Rstd(vector);
      parts.push_back({{j, increment, weight, 0}, std::move(vector)});
    }
    if (mixer.prepost) ScalePrepost(tensors.post.f32() + c * model_.config().n_embd, parts);
    if (mixer.prepost || mixer.kind() == MixerKind::kAttention) {
      parts.push_back({{i, false, 1, 0}, x_[static_cast<size_t>(i)]});
    }
    return parts;
  }

  // Y = X_i + post * rms(sum): the factor of rms goes to the weights, post to the vectors.
  static void ScalePrepost(const float* post, std::vector<Part>& parts) {
    const double rstd = Rstd(Sum(parts));
    for (Part& part : parts) {
      part.contribution.weight *= rstd;
      for (size_t e = 0; e < part.vector.size(); ++e) part.vector[e] *= post[e];
    }
  }

  static Row Sum(const std::vector<Part>& parts) {
    Row sum(parts.front().vector.size());
    for (const Part& part : parts) {
      for (size_t e = 0; e < sum.size(); ++e) sum[e] += part.contribution.weight * part.vector[e];
    }
    return sum;
  }

  DepthModuleView View(int i, int c, int64_t row) const {
    DepthModuleView view;
    view.depth = i;
    view.stream = StreamName(model_.mixer().streams[static_cast<size_t>(c)]);
    view.norm = Norm(RowOf(a_.y(i, c), row));
    std::vector<Part> parts = Parts(i, c, row);
    view.sum_norm = Norm(Sum(parts));
    for (Part& part : parts) {
      part.contribution.norm = Norm(part.vector);
      view.contributions.push_back(part.contribution);
    }
    return view;
  }

  const Model& model_;
  Activations& a_;
  std::vector<Row> x_, y_;
};

// The head on the final LayerNorm of each row of `y`.
std::vector<DepthPrediction> Predict(const LanguageModel& language, const Watcher& seen,
                                     int32_t next, int likeliest) {
  const Model& model = language.impl().model;
  const int64_t rows = static_cast<int64_t>(seen.y().size());
  const int64_t cols = model.config().n_embd, vocab = model.config().vocab_size;
  const size_t choices =
      static_cast<size_t>(std::min<int64_t>(vocab, language.tokenizer().vocab_size()));
  std::vector<float> y, logits(static_cast<size_t>(rows * vocab));
  for (const Row& row : seen.y()) {
    for (const double value : row) y.push_back(static_cast<float>(value));
  }
  Storage normed(static_cast<size_t>(rows * cols) * SizeOf(model.compute()));
  const Tensor norm(normed.data(), model.compute(), {rows, cols});
  LayerNormForward(Tensor(y.data(), {rows, cols}), model.tensors().ln_f_weight,
                   model.tensors().ln_f_bias, norm, Tensor(), Tensor());
  LinearForward(norm, model.packed_head(), Tensor(), Tensor(logits.data(), {rows, vocab}));
  std::vector<DepthPrediction> predictions;
  for (int64_t i = 0; i < rows; ++i) {
    const std::span<const float> row(logits.data() + i * vocab, static_cast<size_t>(vocab));
    DepthPrediction& prediction = predictions.emplace_back();
    prediction.depth = static_cast<int>(i);
    prediction.x_norm = Norm(seen.x()[static_cast<size_t>(i)]);
    prediction.y_norm = Norm(seen.y()[static_cast<size_t>(i)]);
    const GeneratedToken token = TokenLogprobs(row, choices, std::max(next, 0), likeliest);
    prediction.likeliest = token.likeliest;
    if (next < 0) continue;
    prediction.next = token.chosen;
    const std::span<const float> tokens = row.first(choices);
    prediction.next_rank = 1 + std::count_if(tokens.begin(), tokens.end(), [&](float logit) {
                             return logit > row[static_cast<size_t>(next)];
                           });
  }
  return predictions;
}

}  // namespace

DepthView ViewDepth(const LanguageModel& language, std::span<const int32_t> tokens, int32_t next,
                    int likeliest) {
  const Model& model = language.impl().model;
  if (next >= language.tokenizer().vocab_size()) {
    Throw(ErrorCode::kInvalid, "depth view: token {}, expected 0 to {}", next,
          language.tokenizer().vocab_size() - 1);
  }
  const Batch batch{tokens, {}, 1, static_cast<int64_t>(tokens.size())};
  CheckBatch(model, batch);
  Activations activations(model, 1, batch.length, ModelUse::kInference);
  Watcher watcher(model, activations);
  ForwardSequences(model, batch, DropoutOptions(), activations,
                   [&](int i, const Tensor& x, const Tensor& y) { watcher.Observe(i, x, y); });
  return {std::move(watcher.modules), Predict(language, watcher, next, likeliest)};
}

}  // namespace denseformer
