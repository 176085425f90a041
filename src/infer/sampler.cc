#include "infer/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "kernels/softmax_weights.h"

namespace denseformer {
namespace {

// A token and its logit in one number: the smaller, the more likely, and of equal logits the
// smaller id, so that every order of tokens is the same on every machine.
using Rank = uint64_t;

Rank RankOf(float logit, size_t id) {
  const uint32_t bits = std::bit_cast<uint32_t>(logit + 0.0f);  // -0 is as likely as 0
  const uint32_t falling = (bits & 0x80000000) != 0 ? bits : ~bits & 0x7fffffff;
  return Rank{falling} << 32 | static_cast<uint32_t>(id);
}

// Up to so many ranks are put in order with one look at each of the others.
constexpr size_t kFewRanks = 256;

size_t IdOf(Rank rank) { return static_cast<uint32_t>(rank); }

// Of the thread, for it has one row at a time: what a vocabulary takes stays in its cache.
struct Scratch {
  std::vector<float> logits;
  std::vector<double> weights;  // by id
  std::vector<Rank> ranks;
};
thread_local Scratch scratch;

std::span<Rank> RankTokens(std::span<const float> logits) {
  std::vector<Rank>& ranks = scratch.ranks;
  ranks.resize(logits.size());
  for (size_t id = 0; id < logits.size(); ++id) ranks[id] = RankOf(logits[id], id);
  return ranks;
}

// The `count` likeliest of them, in order only where they are few.
std::span<Rank> Likeliest(std::span<Rank> ranks, size_t count) {
  if (count >= ranks.size()) return ranks;
  const auto end = ranks.begin() + static_cast<int64_t>(count);
  if (count <= kFewRanks) {
    std::partial_sort(ranks.begin(), end, ranks.end());
  } else {
    std::nth_element(ranks.begin(), end, ranks.end());
  }
  return ranks.first(count);
}

// The largest logit, where all of them are numbers.
float RequireFinite(std::span<const float> logits) {
  const float largest = LargestFinite(logits);
  if (std::isnan(largest)) {
    const auto bad =
        std::find_if(logits.begin(), logits.end(), [](float x) { return !std::isfinite(x); });
    Throw(ErrorCode::kNonFinite,
          "generate: logit {} of token {} is not finite; the weights are damaged", *bad,
          bad - logits.begin());
  }
  return largest;
}

double SumOf(std::span<const Rank> ranks) {
  double sum = 0;
  for (const Rank rank : ranks) sum += scratch.weights[IdOf(rank)];
  return sum;
}

// How many of the likeliest tokens it takes for a weight of `target` together; all where that is
// never reached. Reorders `ranks` so that these come first, the last of them in its place. Only the
// part that the target lies in is ordered further: sorting a vocabulary would take milliseconds.
size_t CountToWeight(std::span<Rank> ranks, double target) {
  constexpr size_t kFew = 32;
  size_t begin = 0, end = ranks.size();
  double before = 0;  // the weight of those before `begin`, all of them likelier than the rest
  while (end - begin > kFew) {
    // A median of three different numbers leaves neither part empty.
    const Rank a = ranks[begin], b = ranks[begin + (end - begin) / 2], c = ranks[end - 1];
    const Rank pivot = std::max(std::min(a, b), std::min(std::max(a, b), c));
    const auto middle = std::partition(ranks.begin() + static_cast<int64_t>(begin),
                                       ranks.begin() + static_cast<int64_t>(end),
                                       [&](Rank r) { return r <= pivot; });
    const size_t likelier = static_cast<size_t>(middle - ranks.begin());
    const double sum = SumOf(ranks.subspan(begin, likelier - begin));
    if (before + sum >= target) {
      end = likelier;
    } else {
      before += sum;
      begin = likelier;
    }
  }
  std::sort(ranks.begin() + static_cast<int64_t>(begin), ranks.begin() + static_cast<int64_t>(end));
  while (begin < end && before < target) before += scratch.weights[IdOf(ranks[begin++])];
  return std::max<size_t>(begin, 1);
}

}  // namespace

Sampler::Sampler(const SamplingOptions& options, uint64_t stream)
    : options_(options), stream_(stream) {}

std::span<const float> Sampler::Penalize(std::span<const float> logits,
                                         std::span<const int32_t> context) const {
  if (options_.repetition_penalty == 1) return logits;
  std::vector<float>& penalized = scratch.logits;
  penalized.assign(logits.begin(), logits.end());
  const float penalty = static_cast<float>(options_.repetition_penalty);
  for (const int32_t token : context) {
    const size_t id = static_cast<size_t>(token);
    if (id >= logits.size()) continue;
    // From the logits themselves, so that a token that occurred twice is not punished twice.
    const float logit = logits[id] > 0 ? logits[id] / penalty : logits[id] * penalty;
    penalized[id] =
        std::clamp(logit, std::numeric_limits<float>::lowest(), std::numeric_limits<float>::max());
  }
  return penalized;
}

int32_t Sampler::Choose(std::span<const float> logits, std::span<const int32_t> context,
                        uint64_t position) const {
  RequireFinite(logits);
  logits = Penalize(logits, context);
  const float largest = LargestFinite(logits);
  if (options_.temperature == 0) {
    return static_cast<int32_t>(std::find(logits.begin(), logits.end(), largest) - logits.begin());
  }
  // Relative to the likeliest token, of weight 1.
  scratch.weights.resize(logits.size());
  const double total = SoftmaxWeights(logits, largest, options_.temperature, scratch.weights);
  const double chance = Random(options_.seed, stream_, position).UniformDouble();
  const bool ranked = options_.top_k > 0 || options_.top_p < 1;
  return static_cast<int32_t>(ranked ? ChooseByRank(logits, total, chance)
                                     : ChooseById(total, chance));
}

// Goes through the tokens from the likeliest on.
size_t Sampler::ChooseByRank(std::span<const float> logits, double total, double chance) const {
  std::span<Rank> ranks = RankTokens(logits);
  if (options_.top_k > 0) {
    ranks = Likeliest(ranks, static_cast<size_t>(options_.top_k));
    total = SumOf(ranks);
  }
  if (options_.top_p < 1) ranks = ranks.first(CountToWeight(ranks, options_.top_p * total));
  if (options_.min_p > 0) {
    const auto rest = std::partition(ranks.begin(), ranks.end(), [&](Rank rank) {
      return scratch.weights[IdOf(rank)] >= options_.min_p;
    });
    ranks = ranks.first(static_cast<size_t>(rest - ranks.begin()));
  }
  return IdOf(ranks[CountToWeight(ranks, chance * SumOf(ranks)) - 1]);
}

// Goes through the tokens by their ids, which spares the order.
size_t Sampler::ChooseById(double total, double chance) const {
  const std::vector<double>& weights = scratch.weights;
  if (options_.min_p > 0) {
    total = 0;
    for (const double weight : weights) total += weight >= options_.min_p ? weight : 0;
  }
  double left = chance * total;
  for (size_t id = 0; id < weights.size(); ++id) {
    if (weights[id] < options_.min_p) continue;
    left -= weights[id];
    if (left < 0) return id;
  }
  // Rounding used the whole sum up.
  return static_cast<size_t>(std::find(weights.begin(), weights.end(), 1) - weights.begin());
}

GeneratedToken TokenLogprobs(std::span<const float> logits, size_t choices, int32_t chosen,
                             int count) {
  scratch.weights.resize(logits.size());
  const float largest = RequireFinite(logits);
  const double total =
      largest + std::log(SoftmaxWeights(logits, largest, /*temperature=*/1, scratch.weights));
  auto entry = [&](size_t id) {
    return TokenProbability{static_cast<int32_t>(id), static_cast<float>(logits[id] - total)};
  };
  GeneratedToken result;
  result.chosen = entry(static_cast<size_t>(chosen));
  if (count <= 0) return result;
  const std::span<Rank> ranks =
      Likeliest(RankTokens(logits.first(choices)), static_cast<size_t>(count));
  std::sort(ranks.begin(), ranks.end());
  for (const Rank rank : ranks) result.likeliest.push_back(entry(IdOf(rank)));
  return result;
}

}  // namespace denseformer
