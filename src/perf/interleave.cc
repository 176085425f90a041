#include "perf/interleave.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/progress.h"
#include "base/random.h"

namespace denseformer {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double Quantile(std::vector<double> values, double q) {
  DF_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const size_t below = static_cast<size_t>(at), above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

void Shuffle(std::vector<size_t>& order, Random& random) {
  for (size_t n = order.size(); n > 1; --n) std::swap(order[n - 1], order[random.Below(n)]);
}

}  // namespace

double Timing::median() const { return Quantile(seconds, 0.5); }
double Timing::minimum() const { return Quantile(seconds, 0); }
double Timing::spread() const {
  return (Quantile(seconds, 0.75) - Quantile(seconds, 0.25)) / 2 / median();
}

MedianRatio RatioOfMedians(const Timing& a, const Timing& b) {
  MedianRatio ratio{a.median() / b.median(), 0};
  const size_t rounds = std::min(a.seconds.size(), b.seconds.size());
  if (rounds < 2 || &a == &b) return ratio;
  // Small kernels have 100,000 rounds and more. A draw then takes some of them only: the error of a
  // median falls with the root of the number of values, so that of all rounds follows from it.
  // Fewer draws would not bound the work, and would make the error itself uncertain: it varies by a
  // share of 1 / sqrt(2 * draws), 4 % here.
  constexpr int kDraws = 400;
  constexpr size_t kMostValues = 1000;
  const size_t values = std::min(rounds, kMostValues);
  Random random(/*key=*/1);
  std::vector<double> as(values), bs(values);
  double sum = 0, squares = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    for (size_t i = 0; i < values; ++i) {
      // The same round of both: they met the same state of the machine.
      const size_t round = random.Below(rounds);
      as[i] = a.seconds[round];
      bs[i] = b.seconds[round];
    }
    const double off = Quantile(as, 0.5) / Quantile(bs, 0.5) - ratio.value;
    sum += off;
    squares += off * off;
  }
  const double share = static_cast<double>(values) / static_cast<double>(rounds);
  ratio.error = std::sqrt(share * std::max(0.0, squares - sum * sum / kDraws) / (kDraws - 1));
  return ratio;
}

std::vector<Timing> Interleave(const std::vector<Variant>& variants,
                               const InterleaveOptions& options) {
  std::vector<Timing> timings;
  for (const Variant& variant : variants) timings.push_back({variant.name, {}});
  const Clock::time_point begin = Clock::now();
  std::optional<Progress> progress;
  if (!options.title.empty()) progress.emplace(options.title, "rounds", options.rounds);
  for (const Variant& variant : variants) variant.run();
  std::vector<size_t> order(variants.size());
  std::iota(order.begin(), order.end(), size_t{0});
  Random random(/*key=*/1);
  for (int round = 0; round < options.rounds || Seconds(begin) < options.seconds; ++round) {
    if (options.before_round && !options.before_round(timings)) break;
    Shuffle(order, random);
    for (const size_t v : order) {
      const Clock::time_point start = Clock::now();
      variants[v].run();
      timings[v].seconds.push_back(Seconds(start));
      if (progress) progress->Update(round, variants[v].name);
    }
    if (progress) progress->Update(round + 1);
  }
  return timings;
}

}  // namespace denseformer
