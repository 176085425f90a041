// Which tokens a training step or an evaluation reads.
//
// Training: sample s of step n is a window of T + 1 tokens whose start is a pure function of
// (seed, n, s). It does not depend on the number of processes, and a run resumes at any step with
// no state. With g = n * B + s the number of the sample in the run:
//   kShuffled  the stream is cut into W = (size - 1) / T windows; epoch g / W visits each exactly
//              once, in the order of a permutation keyed by (seed, epoch)
//   kRandom    any start from 0 to size - T - 1 with equal probability, as the authors' code does
//
// Evaluation: consecutive windows from the start of the stream to its end.
#ifndef DENSEFORMER_DATA_BATCHES_H_
#define DENSEFORMER_DATA_BATCHES_H_

#include <cstdint>
#include <string>
#include <utility>

#include "data/token_file.h"

namespace denseformer {

enum class BatchOrder { kShuffled, kRandom };

// "shuffled" or "random"; throws kInvalid.
BatchOrder ParseBatchOrder(const std::string& name);

struct BatchOptions {
  int64_t sequence_length = 0;  // T
  int64_t batch_size = 0;       // B: samples per step over all processes
  uint64_t seed = 0;
  BatchOrder order = BatchOrder::kShuffled;
};

// A bijection of [0, n), chosen by (seed, round), computed for one index at a time.
uint64_t PermuteIndex(uint64_t seed, uint64_t round, uint64_t n, uint64_t index);

// The samples [first, first + count) of a batch of B that process `rank` of `world` works on.
struct SampleRange {
  int64_t first, count;
};
SampleRange ShardOf(int64_t batch_size, int rank, int world);

// Thread-safe. The file must outlive it.
class TrainBatches {
 public:
  // Throws kInvalid where the file has fewer than T + 1 tokens.
  TrainBatches(const TokenFile& file, const BatchOptions& options);

  // The first token of the window of sample `sample` < B of step `step` >= 0.
  int64_t WindowStart(int64_t step, int64_t sample) const;

  // inputs[i] and targets[i], each T long: the tokens of the window of sample first + i, and those
  // one further on.
  void Fill(int64_t step, SampleRange samples, int32_t* inputs, int32_t* targets) const;

  // W: windows of an epoch.
  int64_t windows() const { return windows_; }
  // How many times the stream has been gone through before `step`.
  double EpochsAt(int64_t step) const {
    return static_cast<double>(step) * static_cast<double>(options_.batch_size) /
           static_cast<double>(windows_);
  }
  const BatchOptions& options() const { return options_; }

 private:
  const TokenFile& file_;
  BatchOptions options_;
  int64_t windows_ = 0;
};

// Thread-safe. The file must outlive it.
class EvalWindows {
 public:
  // Stands where the last window has no target (as kIgnoreTarget of the loss).
  static constexpr int32_t kNoTarget = -1;

  // Throws kInvalid where the file has fewer than 2 tokens.
  EvalWindows(const TokenFile& file, int64_t sequence_length);

  // The last one may be shorter than T.
  int64_t count() const { return count_; }
  // Targets of all windows together: size - 1.
  int64_t targets() const { return file_.size() - 1; }

  // Windows [first, first + windows) to inputs and targets, T each; behind the end of the stream
  // the input is 0 and the target kNoTarget.
  void Fill(int64_t first, int64_t windows, int32_t* inputs, int32_t* targets) const;

 private:
  const TokenFile& file_;
  int64_t sequence_length_;
  int64_t count_ = 0;
};

}  // namespace denseformer

#endif  // DENSEFORMER_DATA_BATCHES_H_
