#include "sweep/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace denseformer {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// The continued fraction of the incomplete beta function, by Lentz's method.
double BetaFraction(double a, double b, double x) {
  constexpr int kMostTerms = 500;
  constexpr double kTiny = 1e-300, kEpsilon = 1e-16;
  const auto away_from_zero = [](double v) { return std::abs(v) < kTiny ? kTiny : v; };
  double c = 1, d = 1 / away_from_zero(1 - (a + b) * x / (a + 1)), fraction = d;
  for (int m = 1; m <= kMostTerms; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    double change = 1;
    for (const double term : {even, odd}) {
      d = 1 / away_from_zero(1 + term * d);
      c = away_from_zero(1 + term / c);
      change = c * d;
      fraction *= change;
    }
    if (std::abs(change - 1) < kEpsilon) break;
  }
  return fraction;
}

// I_x(a, b).
double IncompleteBeta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                a * std::log(x) + b * std::log1p(-x));
  // The fraction converges fast below the mean; above, the symmetric one does.
  return x < (a + 1) / (a + b + 2) ? front * BetaFraction(a, b, x) / a
                                   : 1 - front * BetaFraction(b, a, 1 - x) / b;
}

double Correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const double mean_a = EstimateMean(a).mean, mean_b = EstimateMean(b).mean;
  double aa = 0, bb = 0, ab = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    aa += (a[i] - mean_a) * (a[i] - mean_a);
    bb += (b[i] - mean_b) * (b[i] - mean_b);
    ab += (a[i] - mean_a) * (b[i] - mean_b);
  }
  return a.size() < 2 || aa == 0 || bb == 0 ? kNone : ab / std::sqrt(aa * bb);
}

}  // namespace

Estimate EstimateMean(const std::vector<double>& values) {
  const double n = static_cast<double>(values.size());
  if (values.empty()) return {0, kNone, kNone};
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {static_cast<int>(values.size()), mean,
          values.size() < 2 ? kNone : std::sqrt(squares / (n - 1) / n)};
}

double StudentTwoSided(double t, double degrees) {
  if (std::isnan(t) || !(degrees > 0)) return kNone;
  if (std::isinf(t)) return 0;
  return IncompleteBeta(degrees / 2, 0.5, degrees / (degrees + t * t));
}

double StudentQuantile(double share, double degrees) {
  if (!(degrees > 0)) return kNone;
  DF_CHECK(share > 0 && share < 1);
  double low = 0, high = 1;
  while (StudentTwoSided(high, degrees) > share) high *= 2;
  // As many halvings as a double has bits.
  for (int i = 0; i < 64; ++i) {
    const double middle = (low + high) / 2;
    (StudentTwoSided(middle, degrees) > share ? low : high) = middle;
  }
  return (low + high) / 2;
}

PairedDifference ComparePairs(const std::vector<double>& a, const std::vector<double>& b) {
  DF_CHECK(a.size() == b.size());
  std::vector<double> differences;
  for (size_t i = 0; i < a.size(); ++i) differences.push_back(a[i] - b[i]);
  const Estimate estimate = EstimateMean(differences);
  PairedDifference result;
  result.pairs = estimate.count;
  result.mean = estimate.mean;
  result.standard_error = estimate.standard_error;
  const double degrees = estimate.count - 1.0;
  const double half = StudentQuantile(0.05, degrees) * estimate.standard_error;
  result.low = estimate.mean - half;
  result.high = estimate.mean + half;
  // Equal differences: certain, whatever their size, unless there is none.
  const bool none = estimate.standard_error == 0 && estimate.mean == 0;
  result.p = none ? 1 : StudentTwoSided(estimate.mean / estimate.standard_error, degrees);
  result.correlation = Correlation(a, b);
  return result;
}

std::vector<double> HolmAdjusted(const std::vector<double>& p) {
  std::vector<size_t> order;
  for (size_t i = 0; i < p.size(); ++i) {
    if (!std::isnan(p[i])) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] < p[b]; });
  std::vector<double> adjusted(p.size(), kNone);
  double largest = 0;
  for (size_t k = 0; k < order.size(); ++k) {
    largest = std::max(largest, p[order[k]] * static_cast<double>(order.size() - k));
    adjusted[order[k]] = std::min(1.0, largest);
  }
  return adjusted;
}

}  // namespace denseformer
