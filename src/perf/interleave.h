// Timing on machines that are shared and noisy: the variants take turns, A B C, B C A, ..., so that
// each meets the same disturbances; what counts is the ratio of their medians and of their minima.
#ifndef DENSEFORMER_PERF_INTERLEAVE_H_
#define DENSEFORMER_PERF_INTERLEAVE_H_

#include <functional>
#include <string>
#include <vector>

namespace denseformer {

struct Variant {
  std::string name;
  std::function<void()> run;
};

// Seconds of one call.
struct Timing {
  std::string name;
  std::vector<double> seconds;  // in the order of the rounds

  double median() const;
  double minimum() const;
  // Half the distance between the quartiles, as a share of the median.
  double spread() const;
};

// Median of a over median of b, variants of one measurement; and its standard error: how much it
// varies over resamples of the measured rounds, with replacement (bootstrap). 0 for
// less than two rounds. It knows nothing of what is the same in all rounds of a process, such as
// where its memory lies.
struct MedianRatio {
  double value = 0;
  double error = 0;
};
MedianRatio RatioOfMedians(const Timing& a, const Timing& b);

struct InterleaveOptions {
  int rounds = 10;     // at least this many, ...
  double seconds = 0;  // ... and until this much time has passed
  std::string title;   // of the progress bar; empty: none
  // Called before each round where given; returning false ends the measurement. Lets another
  // program take its turns between the rounds.
  std::function<bool(const std::vector<Timing>& so_far)> before_round;
};

// Runs each variant once to warm up, then all of them in every round, in an order that is shuffled
// for each (the same in every run): what one leaves in the cache is not always found by the
// same other.
std::vector<Timing> Interleave(const std::vector<Variant>& variants,
                               const InterleaveOptions& options);

}  // namespace denseformer

#endif  // DENSEFORMER_PERF_INTERLEAVE_H_
