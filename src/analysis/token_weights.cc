#include "analysis/token_weights.h"

#include <algorithm>
#include <cmath>

#include "analysis/observe.h"
#include "base/error.h"
#include "model/mixer.h"

namespace denseformer {
namespace {

// Sums over tokens of one stream of one module.
struct Sums {
  std::vector<double> sum, squares;  // per source
  double entropy = 0, newest = 0;

  void Add(const float* weights, size_t n, double gate) {
    sum.resize(n);
    squares.resize(n);
    double size = 0;
    for (size_t k = 0; k < n; ++k) {
      const double weight = gate * static_cast<double>(weights[k]);
      sum[k] += weight;
      squares[k] += weight * weight;
      size += std::abs(static_cast<double>(weights[k]));
    }
    if (size == 0) return;
    newest += std::abs(static_cast<double>(weights[n - 1])) / size;
    for (size_t k = 0; k < n; ++k) {
      const double share = std::abs(static_cast<double>(weights[k])) / size;
      if (share > 0) entropy -= share * std::log(share);
    }
  }
};

void Store(const Sums& sums, const std::vector<int>& sources, int i, double tokens,
           StreamWeights& to) {
  for (size_t k = 0; k < sources.size(); ++k) {
    const double mean = sums.sum[k] / tokens;
    to.mean.value[i][sources[k]] = mean;
    to.spread.value[i][sources[k]] =
        std::sqrt(std::max(0.0, sums.squares[k] / tokens - mean * mean));
  }
  to.entropy[i] = sums.entropy / tokens;
  to.newest[i] = sums.newest / tokens;
}

}  // namespace

TokenWeights MeasureTokenWeights(const Model& model, const TokenFile& file, int64_t most_tokens,
                                 const std::string& name) {
  const DepthPattern& pattern = model.pattern();
  if (pattern.module_count() == 0 || model.mixer().plain()) {
    Throw(ErrorCode::kInvalid,
          "{}: the weights of this model (model.dwa {}, model.mixer {}, model.streams {}) do not "
          "differ between tokens or streams; see the study weights",
          name, model.config().dwa, model.config().mixer, model.config().streams);
  }
  const int d = pattern.depth();
  const size_t streams = model.mixer().streams.size();
  std::vector<std::vector<Sums>> sums(static_cast<size_t>(d) + 1, std::vector<Sums>(streams));
  TokenWeights result;
  result.tokens =
      ObserveDepths(model, file, most_tokens,
                    [&](int i, const Tensor& x, const Tensor&, Activations& activations) {
                      if (!pattern.has_module(i)) return;
                      const size_t n = pattern.sources(i).size();
                      const int count = activations.streams(i);
                      const Tensor& gate = model.tensors().mixers[i].gate;
                      const float* weights = activations.mix(i).weights.f32();
                      for (int64_t t = 0; t < x.rows(); ++t) {
                        for (int c = 0; c < count; ++c, weights += n) {
                          sums[i][c].Add(weights, n, gate.empty() ? 1.0 : gate.f32()[c]);
                        }
                      }
                    });
  for (size_t c = 0; c < streams; ++c) {
    const std::vector<double> none(static_cast<size_t>(d) + 1, std::nan(""));
    StreamWeights weights{StreamName(model.mixer().streams[c]), EmptyDepthMatrix(d),
                          EmptyDepthMatrix(d), none, none};
    for (int i = 1; i <= d; ++i) {
      if (sums[i][c].sum.empty()) continue;
      Store(sums[i][c], pattern.sources(i), i, static_cast<double>(result.tokens), weights);
    }
    result.streams.push_back(std::move(weights));
  }
  return result;
}

}  // namespace denseformer
