#include "sweep/exchange.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "sweep/metrics.h"
#include "sweep/results.h"

namespace denseformer {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kNever = std::numeric_limits<double>::infinity();

double StepsOf(const RowResult& row) {
  return static_cast<double>(row.row->OptionsOf(row.row->seeds.front()).steps);
}

bool IsBound(const ExchangeResult& result, double multiple) {
  return multiple <= result.lowest || multiple > result.highest;
}

// "1.31x", "at most 1x", "beyond 1.5x".
std::string MultipleText(const ExchangeResult& result, double multiple, double time_ratio) {
  if (multiple > result.highest) return fmt::format("beyond {:.3g}x", result.highest / time_ratio);
  const char* bound = multiple <= result.lowest ? "at most " : "";
  return fmt::format("{}{:.3g}x", bound, multiple / time_ratio);
}

// "1.31x [1.12x, 1.50x] (1.24x, 1.31x, 1.38x by seed)"; where a seed is a bound, the seeds alone.
std::string MultiplesText(const ExchangeResult& result, double time_ratio) {
  std::vector<std::string> seeds;
  for (const double multiple : result.multiples)
    seeds.push_back(MultipleText(result, multiple, time_ratio));
  const std::string by_seed = Join(seeds, ", ") + " by seed";
  if (!std::isfinite(result.mean)) return by_seed;
  return fmt::format("{:.3g}x, 95 % interval [{:.3g}x, {:.3g}x] ({})", result.mean / time_ratio,
                     result.low / time_ratio, result.high / time_ratio, by_seed);
}

}  // namespace

double FirstReach(const std::vector<double>& x, const std::vector<double>& y, double level) {
  DF_CHECK(x.size() == y.size() && !x.empty());
  if (y[0] <= level) return x[0];
  for (size_t i = 1; i < x.size(); ++i) {
    if (y[i] <= level) return x[i - 1] + (x[i] - x[i - 1]) * (y[i - 1] - level) / (y[i - 1] - y[i]);
  }
  return kNever;
}

ExchangeResult MakeExchange(const Exchange& exchange, const RowResult& model,
                            std::vector<const RowResult*> others) {
  std::stable_sort(others.begin(), others.end(), [](const RowResult* a, const RowResult* b) {
    return StepsOf(*a) < StepsOf(*b);
  });
  ExchangeResult result;
  result.exchange = &exchange;
  std::vector<double> x;
  for (const RowResult* other : others) x.push_back(StepsOf(*other) / StepsOf(model));
  result.lowest = x.front();
  result.highest = x.back();
  for (const int64_t seed : model.row->seeds) {
    const double level = MetricOfSeed("loss", model, seed);
    std::vector<double> y;
    for (const RowResult* other : others) y.push_back(MetricOfSeed("loss", *other, seed));
    const bool all = std::none_of(y.begin(), y.end(), [](double v) { return std::isnan(v); });
    if (all && !std::isnan(level)) result.multiples.push_back(FirstReach(x, y, level));
  }
  const bool bounds = std::any_of(result.multiples.begin(), result.multiples.end(),
                                  [&](double multiple) { return IsBound(result, multiple); });
  const Estimate estimate = EstimateMean(bounds ? std::vector<double>() : result.multiples);
  const double half = estimate.count < 2
                          ? kNone
                          : StudentQuantile(0.05, estimate.count - 1.0) * estimate.standard_error;
  result.mean = estimate.count < 2 ? kNone : estimate.mean;
  result.low = estimate.mean - half;
  result.high = estimate.mean + half;
  return result;
}

std::string ExchangeText(const ExchangeResult& result, double time_ratio, double time_ratio_error) {
  const Exchange& exchange = *result.exchange;
  std::string text = fmt::format("Steps with which {} reaches the loss of {}, over those of {}: ",
                                 exchange.others.front(), exchange.model, exchange.model);
  if (result.multiples.empty()) return text + "not run.";
  text += MultiplesText(result, 1);
  if (std::isfinite(time_ratio)) {
    text += fmt::format("; training time, where a step of {} takes {:.3f}{} times as long: {}",
                        exchange.model, time_ratio,
                        time_ratio_error > 0 ? fmt::format(" ± {:.3f}", time_ratio_error) : "",
                        MultiplesText(result, time_ratio));
  }
  const bool bounds = std::any_of(result.multiples.begin(), result.multiples.end(),
                                  [&](double multiple) { return IsBound(result, multiple); });
  return text + (bounds ? ". There is no mean, as some are bounds." : ".");
}

}  // namespace denseformer
