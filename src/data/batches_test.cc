#include "data/batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "base/testing.h"

namespace denseformer {
namespace {

constexpr int64_t kLength = 8;

class BatchesTest : public testing::Test {
 protected:
  // A stream in which each token is its position.
  TokenFile MakeFile(int64_t size) {
    std::vector<uint16_t> tokens(static_cast<size_t>(size));
    std::iota(tokens.begin(), tokens.end(), uint16_t{0});
    const std::string path = dir_ / (std::to_string(size) + ".bin");
    OutputFile file(path);
    file.Write(tokens.data(), tokens.size() * 2);
    file.Close();
    return TokenFile(path, TokenType::kUint16);
  }

  TemporaryDirectory dir_;
};

TEST(PermuteIndexTest, IsABijectionThatDependsOnSeedAndRound) {
  for (const uint64_t n : {1, 2, 3, 5, 16, 17, 100, 1023, 4097}) {
    std::vector<uint64_t> a, b, c;
    for (uint64_t i = 0; i < n; ++i) {
      a.push_back(PermuteIndex(1, 0, n, i));
      b.push_back(PermuteIndex(1, 1, n, i));
      c.push_back(PermuteIndex(2, 0, n, i));
    }
    if (n >= 16) {
      EXPECT_NE(a, b);
      EXPECT_NE(a, c);
      EXPECT_FALSE(std::is_sorted(a.begin(), a.end()));
    }
    for (std::vector<uint64_t>* order : {&a, &b, &c}) {
      std::sort(order->begin(), order->end());
      for (uint64_t i = 0; i < n; ++i) ASSERT_EQ((*order)[i], i) << n;
    }
  }
}

TEST(PermuteIndexTest, EveryPlaceIsAsLikely) {
  // Where index 0 of 8 goes in 8,000 rounds: each place about 1,000 times (sigma 30).
  std::vector<int> counts(8);
  for (uint64_t round = 0; round < 8000; ++round) ++counts[PermuteIndex(5, round, 8, 0)];
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
}

TEST_F(BatchesTest, EachWindowExactlyOnceAnEpoch) {
  // 100 windows of 8 and a remainder of 5 tokens; batches of 7 do not divide the epoch.
  const TokenFile file = MakeFile(100 * kLength + 6);
  const TrainBatches batches(file, {kLength, 7, 42, BatchOrder::kShuffled});
  ASSERT_EQ(batches.windows(), 100);
  std::vector<int64_t> starts;
  for (int64_t step = 0; step < 43; ++step) {
    for (int64_t sample = 0; sample < 7; ++sample) {
      starts.push_back(batches.WindowStart(step, sample));
    }
  }
  std::vector<std::vector<int64_t>> epochs;
  for (int epoch = 0; epoch < 3; ++epoch) {
    epochs.emplace_back(starts.begin() + 100 * epoch, starts.begin() + 100 * (epoch + 1));
    const std::set<int64_t> distinct(epochs[epoch].begin(), epochs[epoch].end());
    EXPECT_EQ(distinct.size(), 100u);
    EXPECT_EQ(*distinct.rbegin(), 99 * kLength);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
}

TEST_F(BatchesTest, RandomWindowsReachBothEnds) {
  const TokenFile file = MakeFile(kLength + 4);
  const TrainBatches batches(file, {kLength, 4, 1, BatchOrder::kRandom});
  std::set<int64_t> starts;
  for (int64_t step = 0; step < 100; ++step) starts.insert(batches.WindowStart(step, step % 4));
  EXPECT_EQ(starts, (std::set<int64_t>{0, 1, 2, 3}));
}

TEST_F(BatchesTest, SameForAnyNumberOfProcessesAndFromAnyStep) {
  const TokenFile file = MakeFile(2000);
  for (const BatchOrder order : {BatchOrder::kShuffled, BatchOrder::kRandom}) {
    constexpr int64_t kBatch = 10;
    const TrainBatches whole(file, {kLength, kBatch, 3, order});
    for (const int64_t step : {0, 1, 17, 1000}) {
      std::vector<int32_t> inputs(kBatch * kLength), targets(kBatch * kLength);
      whole.Fill(step, {0, kBatch}, inputs.data(), targets.data());
      for (size_t i = 0; i < inputs.size(); ++i) {
        ASSERT_EQ(targets[i], inputs[i] + 1);
        ASSERT_EQ(inputs[i], whole.WindowStart(step, i / kLength) + int64_t(i % kLength));
      }
      for (const int world : {1, 2, 3, 16}) {
        std::vector<int32_t> all_inputs, all_targets;
        for (int rank = 0; rank < world; ++rank) {
          // Each process makes its own object, as if it had just started.
          const TrainBatches own(file, {kLength, kBatch, 3, order});
          const SampleRange shard = ShardOf(kBatch, rank, world);
          std::vector<int32_t> in(shard.count * kLength), out(shard.count * kLength);
          own.Fill(step, shard, in.data(), out.data());
          all_inputs.insert(all_inputs.end(), in.begin(), in.end());
          all_targets.insert(all_targets.end(), out.begin(), out.end());
        }
        EXPECT_EQ(all_inputs, inputs) << world;
        EXPECT_EQ(all_targets, targets) << world;
      }
    }
  }
}

TEST_F(BatchesTest, TooShortAFile) {
  const TokenFile file = MakeFile(kLength);
  EXPECT_EQ(ErrorOf([&] {
              TrainBatches(file, {kLength, 1, 0, BatchOrder::kShuffled});
            }),
            dir_ / "8.bin" +
                ": 8 tokens, expected at least 9 for a sequence length of 8; use more "
                "text or shorter sequences");
  EXPECT_EQ(ErrorOf([&] { EvalWindows(MakeFile(1), kLength); }),
            dir_ / "1.bin" + ": 1 tokens, expected at least 2");
}

TEST_F(BatchesTest, ConsecutiveWindowsCoverTheStream) {
  for (const int64_t size : {2, 8, 9, 10, 17, 40}) {
    const TokenFile file = MakeFile(size);
    const EvalWindows windows(file, kLength);
    EXPECT_EQ(windows.count(), (size - 1 + kLength - 1) / kLength);
    // One window more than there are, as the last batch of an evaluation may ask for.
    const int64_t asked = windows.count() + 1;
    std::vector<int32_t> inputs(asked * kLength, 99), targets(asked * kLength, 99);
    windows.Fill(0, asked, inputs.data(), targets.data());
    for (int64_t i = 0; i < asked * kLength; ++i) {
      EXPECT_EQ(inputs[i], i < size - 1 ? i : 0);
      EXPECT_EQ(targets[i], i < size - 1 ? i + 1 : EvalWindows::kNoTarget);
    }
    EXPECT_EQ(windows.targets(), size - 1);
  }
}

}  // namespace
}  // namespace denseformer
