// Recomputation of activations: the same bits as without it, in less memory.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/testing.h"

namespace denseformer {
namespace {

constexpr const char* kPatterns[] = {"none",
                                     "1x1",
                                     "4x1",
                                     "4x5",
                                     "2x3",
                                     "last:1",
                                     "last:3",
                                     "final",
                                     "grouped:1x3",
                                     "grouped:2x2",
                                     "mask:11/000/1001/00001/000000/1010101"};

// Loss and gradients of two passes over different batches, the second added to the first.
struct Accumulated {
  double first = 0, second = 0;
  std::vector<float> gradients;
};
Accumulated Accumulate(const Model& model, float dropout, bool recompute) {
  Activations activations(model, 3, 19, ModelUse::kTraining, recompute);
  const RandomBatch first(model.config(), 3, 19, 3, /*ignore_every=*/4);
  const RandomBatch second(model.config(), 2, 11, 4);
  Accumulated result;
  result.first = ForwardBackward(model, first.batch(), {dropout, 5, 6}, 0.5f, Gradients::kReplace,
                                 activations);
  result.second =
      ForwardBackward(model, second.batch(), {dropout, 5, 7}, 0.5f, Gradients::kAdd, activations);
  result.gradients.assign(model.gradients().begin(), model.gradients().end());
  return result;
}

void ExpectSameBits(const ModelConfig& config, DType compute, float dropout) {
  SCOPED_TRACE(fmt::format("{} blocks, dwa {}, {}, gains {}, bias {}, dropout {}", config.n_layer,
                           config.dwa, DTypeName(compute), config.gains, config.bias, dropout));
  Model model = RandomModel(config, compute);
  const Accumulated expected = Accumulate(model, dropout, /*recompute=*/false);
  const Accumulated got = Accumulate(model, dropout, /*recompute=*/true);
  EXPECT_EQ(got.first, expected.first);
  EXPECT_EQ(got.second, expected.second);
  EXPECT_TRUE(SameBits(got.gradients, expected.gradients));
}

TEST(RecomputeTest, GradientsAreTheSameBits) {
  for (const char* pattern : kPatterns) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      for (const bool extras : {false, true}) {  // gains and biases
        for (const float dropout : {0.0f, 0.2f}) {
          ExpectSameBits(SmallConfig(pattern, extras, extras), compute, dropout);
        }
      }
    }
  }
}

TEST(RecomputeTest, WithAnyNumberOfThreads) {
  for (const int threads : {1, 2, 5}) {
    const ThreadsGuard guard(threads);
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      ExpectSameBits(SmallConfig("4x1", true, true), compute, 0.2f);
    }
  }
}

// Wide enough for the kernels that take whole tiles.
TEST(RecomputeTest, WithWholeTiles) {
  ModelConfig config = SmallConfig("2x1");
  config.n_embd = 128;
  config.n_head = 2;
  config.vocab_size = 256;
  for (const DType compute : {DType::kF32, DType::kBF16}) ExpectSameBits(config, compute, 0.1f);
}

TEST(RecomputeTest, OneBlock) {
  for (const char* pattern : {"none", "1x1"}) {
    ModelConfig config = SmallConfig(pattern);
    config.n_layer = 1;
    for (const DType compute : {DType::kF32, DType::kBF16}) ExpectSameBits(config, compute, 0.2f);
  }
}

TEST(RecomputeTest, AnEvaluationBetweenPassesChangesNothing) {
  Model model = RandomModel(SmallConfig("2x3", true, true), DType::kBF16);
  const RandomBatch batch(model.config(), 3, 19, 3);
  const PassResult expected = RunPass(model, batch);
  Activations activations(model, 3, 19, ModelUse::kTraining, /*recompute=*/true);
  EXPECT_EQ(ForwardLoss(model, batch.batch(), activations), expected.loss);
  EXPECT_TRUE(SameBits(RunPass(model, batch, activations).gradients, expected.gradients));
}

TEST(RecomputeTest, TakesThePlannedMemoryAndLess) {
  for (const char* pattern : kPatterns) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      const ModelConfig config = SmallConfig(pattern);
      Model model = RandomModel(config, compute);
      size_t bytes[2];
      for (const bool recompute : {false, true}) {
        Activations activations(model, 3, 19, ModelUse::kTraining, recompute);
        RunPass(model, RandomBatch(config, 3, 19, 3), activations);
        bytes[recompute] = activations.bytes();
        EXPECT_EQ(bytes[recompute],
                  Activations::Bytes(config, compute, 3, 19, ModelUse::kTraining, recompute));
      }
      // A set of a block: 14 D numbers per row in the compute type and D in fp32, at least.
      const size_t set = 3 * 19 * 24 * (14 * SizeOf(compute) + sizeof(float));
      EXPECT_GE(bytes[0] - bytes[1], 5 * set) << pattern << " " << DTypeName(compute);
    }
  }
}

}  // namespace
}  // namespace denseformer
