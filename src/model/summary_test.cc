// FLOPs by hand, and the parts of the memory. (The test of the command info compares the sum with
// what a training run takes.)
#include "model/summary.h"

#include <gtest/gtest.h>

#include "model/model.h"

namespace denseformer {
namespace {

ModelConfig MediumConfig(const char* dwa) {
  ModelConfig config;
  config.n_layer = 12;
  config.n_head = 4;
  config.n_embd = 256;
  config.vocab_size = 8192;
  config.seq_len = 128;
  config.dwa = dwa;
  return config;
}

TEST(SummaryTest, Flops) {
  ModelConfig config = ModelConfig::Preset("test");  // D = 32, d = 4, V = 512
  config.dwa = "1x1";
  const FlopsPerToken flops = ForwardFlops(config, 9);
  EXPECT_EQ(flops.linear, 2 * 4 * (96 + 32 + 128 + 128) * 32);
  EXPECT_EQ(flops.attention, 4 * 2 * 2 * 32 * (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8 + 9) / 9);
  EXPECT_EQ(flops.head, 2 * 512 * 32);
  EXPECT_EQ(flops.dwa, 2 * 32 * (2 + 3 + 4 + 5));
  EXPECT_EQ(flops.total(), flops.linear + flops.attention + flops.head + flops.dwa);
}

TEST(SummaryTest, PartsOfTheMemory) {
  const ModelConfig config = MediumConfig("4x5");
  const Model model(config, DType::kF32, ModelUse::kTraining);
  const MemoryUse training = TrainingMemory(config, DType::kF32, 3, 100);
  const int64_t weights = static_cast<int64_t>(model.weights().size_bytes());
  EXPECT_EQ(training.weights, weights);
  EXPECT_EQ(training.gradients, weights);
  EXPECT_EQ(training.moments, 2 * weights);
  EXPECT_EQ(training.copies, 0);
  EXPECT_GT(TrainingMemory(config, DType::kBF16, 3, 100).copies, 0);
  // Four ranks share the moments, and in bf16 the masters of the blocks' matrices.
  const MemoryUse shared = TrainingMemory(config, DType::kF32, 3, 100, false, 4);
  EXPECT_EQ(shared.moments, training.moments / 4);
  EXPECT_EQ(shared.weights, training.weights);
  const int64_t matrices = int64_t{config.n_layer} * 12 * config.n_embd * config.n_embd * 4;
  EXPECT_EQ(TrainingMemory(config, DType::kBF16, 3, 100, false, 4).weights,
            training.weights - matrices / 4 * 3);
  const MemoryUse inference = InferenceMemory(config, WeightFormat::kF32, 3, 100);
  EXPECT_EQ(inference.gradients + inference.moments, 0);
  // Held once; and no more than padding beyond the elements.
  EXPECT_LT(inference.weights + inference.copies, weights + weights / 100);
  EXPECT_LT(InferenceMemory(config, WeightFormat::kBF16, 3, 100).copies, weights * 51 / 100);
  EXPECT_LT(InferenceMemory(config, WeightFormat::kInt8, 3, 100).copies, weights * 27 / 100);
  EXPECT_LT(inference.activations, training.activations);
}

TEST(SummaryTest, EffectOfRecompute) {
  ModelConfig config = ModelConfig::Preset("test");  // D = 32, d = 4
  // Three blocks without the GEMMs D -> 4D.
  EXPECT_EQ(RecomputeFlopsPerToken(config, 9), 3 * (2 * (96 + 32 + 128) * 32 + 2 * 32 * 10));
  config = MediumConfig("4x5");
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const MemoryUse kept = TrainingMemory(config, compute, 3, 100);
    const MemoryUse recomputed = TrainingMemory(config, compute, 3, 100, /*recompute=*/true);
    const RecomputeEffect effect = EffectOfRecompute(config, compute, 3, 100);
    EXPECT_EQ(kept.total() - recomputed.total(), effect.saved_bytes);
    EXPECT_EQ(kept.activations - recomputed.activations, effect.saved_bytes);
    // Of 11 blocks: 14 D numbers in the type of the GEMMs, D more in fp32, and statistics.
    const int64_t least = 11 * 300 * 256 * (14 * static_cast<int64_t>(SizeOf(compute)) + 4);
    EXPECT_GE(effect.saved_bytes, least);
    EXPECT_LE(effect.saved_bytes, least + least / 50);
    EXPECT_GT(effect.more_operations, 0.15);
    EXPECT_LT(effect.more_operations, 1.0 / 3);
  }
}

}  // namespace
}  // namespace denseformer
