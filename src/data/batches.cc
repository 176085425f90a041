#include "data/batches.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/random.h"

namespace denseformer {
namespace {

constexpr int kFeistelRounds = 8;

}  // namespace

BatchOrder ParseBatchOrder(const std::string& name) {
  if (name == "shuffled") return BatchOrder::kShuffled;
  if (name == "random") return BatchOrder::kRandom;
  Throw(ErrorCode::kInvalid, "order of batches: got '{}', expected shuffled or random", name);
}

// A Feistel network permutes the numbers of an even count of bits; a result outside [0, n) goes
// through it again until it is inside (at most about four times on average), which keeps it a
// bijection of [0, n).
uint64_t PermuteIndex(uint64_t seed, uint64_t round, uint64_t n, uint64_t index) {
  DF_CHECK(index < n);
  const int half = std::max(1, static_cast<int>(std::bit_width(n - 1) + 1) / 2);
  const uint64_t mask = (uint64_t{1} << half) - 1;
  const uint64_t stream = HashName("order of windows") ^ round * 0x9E3779B97F4A7C15u;
  do {
    uint64_t left = index >> half, right = index & mask;
    for (uint64_t i = 0; i < kFeistelRounds; ++i) {
      const Random4 noise = Philox(seed, stream, right << 8 | i);
      const uint64_t mixed = (noise[0] | uint64_t{noise[1]} << 32) & mask;
      left ^= mixed;
      std::swap(left, right);
    }
    index = left << half | right;
  } while (index >= n);
  return index;
}

SampleRange ShardOf(int64_t batch_size, int rank, int world) {
  DF_CHECK(world >= 1 && rank >= 0 && rank < world && batch_size >= 0);
  const int64_t first = batch_size * rank / world;
  return {first, batch_size * (rank + 1) / world - first};
}

TrainBatches::TrainBatches(const TokenFile& file, const BatchOptions& options)
    : file_(file), options_(options) {
  DF_CHECK(options.sequence_length >= 1 && options.batch_size >= 1);
  if (file.size() < options.sequence_length + 1) {
    Throw(
        ErrorCode::kInvalid,
        "{}: {} tokens, expected at least {} for a sequence length of {}; use more text or shorter "
        "sequences",
        file.path(), file.size(), options.sequence_length + 1, options.sequence_length);
  }
  windows_ = (file.size() - 1) / options.sequence_length;
}

int64_t TrainBatches::WindowStart(int64_t step, int64_t sample) const {
  DF_CHECK(step >= 0 && sample >= 0 && sample < options_.batch_size);
  const auto number = static_cast<uint64_t>(step * options_.batch_size + sample);
  if (options_.order == BatchOrder::kRandom) {
    // Numbers of one sample take a stream of their own: rejection may need more than one.
    Random random(options_.seed, HashName("random windows") ^ number * 0x9E3779B97F4A7C15u);
    return static_cast<int64_t>(
        random.Below(static_cast<uint64_t>(file_.size() - options_.sequence_length)));
  }
  const auto windows = static_cast<uint64_t>(windows_);
  const uint64_t window = PermuteIndex(options_.seed, number / windows, windows, number % windows);
  return static_cast<int64_t>(window) * options_.sequence_length;
}

void TrainBatches::Fill(int64_t step, SampleRange samples, int32_t* inputs,
                        int32_t* targets) const {
  const int64_t length = options_.sequence_length;
  for (int64_t i = 0; i < samples.count; ++i) {
    const int64_t start = WindowStart(step, samples.first + i);
    file_.Read(start, length, inputs + i * length);
    file_.Read(start + 1, length, targets + i * length);
  }
}

EvalWindows::EvalWindows(const TokenFile& file, int64_t sequence_length)
    : file_(file), sequence_length_(sequence_length) {
  DF_CHECK(sequence_length >= 1);
  if (file.size() < 2) {
    Throw(ErrorCode::kInvalid, "{}: {} tokens, expected at least 2", file.path(), file.size());
  }
  count_ = (file.size() - 1 + sequence_length - 1) / sequence_length;
}

void EvalWindows::Fill(int64_t first, int64_t windows, int32_t* inputs, int32_t* targets) const {
  DF_CHECK(first >= 0 && windows >= 0);
  for (int64_t i = 0; i < windows; ++i) {
    const int64_t start = std::min((first + i) * sequence_length_, file_.size() - 1);
    const int64_t present = std::min(sequence_length_, file_.size() - 1 - start);
    int32_t* const in = inputs + i * sequence_length_;
    int32_t* const out = targets + i * sequence_length_;
    file_.Read(start, present, in);
    file_.Read(start + 1, present, out);
    std::fill(in + present, in + sequence_length_, 0);
    std::fill(out + present, out + sequence_length_, kNoTarget);
  }
}

}  // namespace denseformer
