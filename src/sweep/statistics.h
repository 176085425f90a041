// Statistics of repeated runs: means, paired differences, Student's t, Holm's correction.
//
// Values that do not exist (the standard error of one run, the interval of one pair) are NaN.
#ifndef DENSEFORMER_SWEEP_STATISTICS_H_
#define DENSEFORMER_SWEEP_STATISTICS_H_

#include <vector>

namespace denseformer {

struct Estimate {
  int count = 0;
  double mean = 0;
  double standard_error = 0;  // of the mean: sqrt(sum (x - mean)^2 / (n - 1) / n)
};
Estimate EstimateMean(const std::vector<double>& values);

// P(|T| > |t|) of Student's distribution with `degrees` degrees of freedom.
double StudentTwoSided(double t, double degrees);
// The t with P(|T| > t) = `share`.
double StudentQuantile(double share, double degrees);

// Of a[i] - b[i]; a and b are of equal length.
struct PairedDifference {
  int pairs = 0;
  double mean = 0, standard_error = 0;
  double low = 0, high = 0;  // 95 % t-interval of the mean
  double p = 0;              // two-sided, of "no difference"
  double correlation = 0;    // Pearson's, of a and b: what pairing is worth
};
PairedDifference ComparePairs(const std::vector<double>& a, const std::vector<double>& b);

// Holm's step-down correction: the adjusted p of each, in the order given. A NaN (nothing could be
// tested) stays NaN and does not count.
std::vector<double> HolmAdjusted(const std::vector<double>& p);

}  // namespace denseformer

#endif  // DENSEFORMER_SWEEP_STATISTICS_H_
