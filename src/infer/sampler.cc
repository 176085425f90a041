#include "infer/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/random.h"

namespace denseformer {
namespace {

// Most probable first; equal logits in the order of their ids, so that the choice is deterministic.
template <class T>
bool MoreLikely(const T& a, const T& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

double LogSumExp(std::span<const float> logits) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum);
}

}  // namespace

Sampler::Sampler(const SamplingOptions& options, uint64_t stream)
    : options_(options), stream_(stream) {}

int32_t Sampler::Choose(std::span<const float> logits, std::span<const int32_t> context,
                        uint64_t position) {
  candidates_.resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isfinite(logits[i])) {
      Throw(ErrorCode::kNonFinite,
            "generate: logit {} of token {} is not finite; the weights are damaged", logits[i], i);
    }
    candidates_[i] = {logits[i], static_cast<int32_t>(i)};
  }
  if (options_.repetition_penalty != 1) {
    const float penalty = static_cast<float>(options_.repetition_penalty);
    for (int32_t id : context) {
      // From the logits themselves, so that a token that occurred twice is not punished twice.
      if (static_cast<size_t>(id) >= logits.size()) continue;
      const float logit = logits[id];
      candidates_[id].logit = logit > 0 ? logit / penalty : logit * penalty;
    }
  }
  if (options_.temperature == 0) {
    return std::min_element(candidates_.begin(), candidates_.end(), MoreLikely<Candidate>)->id;
  }
  size_t count = candidates_.size();
  const bool ranked = options_.top_k > 0 || options_.top_p < 1;
  if (options_.top_k > 0) count = std::min<size_t>(count, options_.top_k);
  if (ranked) {
    std::partial_sort(candidates_.begin(), candidates_.begin() + count, candidates_.end(),
                      MoreLikely<Candidate>);
  }
  const auto last = candidates_.begin() + count;
  const float largest = std::min_element(candidates_.begin(), last, MoreLikely<Candidate>)->logit;
  // Weights relative to the most probable token, computed once: over a whole vocabulary their
  // exponentials are what sampling costs.
  weights_.resize(count);
  double total = 0;
  for (size_t i = 0; i < count; ++i) {
    weights_[i] =
        std::exp((static_cast<double>(candidates_[i].logit) - largest) / options_.temperature);
    total += weights_[i];
  }
  if (options_.top_p < 1) {
    double sum = 0;
    size_t kept = 0;
    while (kept < count && sum < options_.top_p * total) sum += weights_[kept++];
    count = std::max<size_t>(kept, 1);
  }
  double kept_total = 0;
  int32_t likeliest = 0;
  for (size_t i = 0; i < count; ++i) {
    if (weights_[i] >= options_.min_p) kept_total += weights_[i];
    if (weights_[i] == 1) likeliest = candidates_[i].id;
  }
  double left = Random(options_.seed, stream_, position).UniformDouble() * kept_total;
  for (size_t i = 0; i < count; ++i) {
    if (weights_[i] < options_.min_p) continue;
    left -= weights_[i];
    if (left < 0) return candidates_[i].id;
  }
  return likeliest;  // rounding used the whole sum up
}

GeneratedToken TokenLogprobs(std::span<const float> logits, size_t choices, int32_t chosen,
                             int count) {
  const double total = LogSumExp(logits);
  auto entry = [&](int32_t id) {
    return TokenProbability{id, static_cast<float>(logits[id] - total)};
  };
  GeneratedToken result;
  result.chosen = entry(chosen);
  std::vector<int32_t> ids(choices);
  std::iota(ids.begin(), ids.end(), 0);
  const size_t kept = std::min<size_t>(std::max(count, 0), ids.size());
  std::partial_sort(ids.begin(), ids.begin() + kept, ids.end(), [&](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  for (size_t i = 0; i < kept; ++i) result.likeliest.push_back(entry(ids[i]));
  return result;
}

}  // namespace denseformer
