// The passes through a model: what must hold without any other implementation to compare with.
// (tests/oracle compares loss, logits and gradients with libtorch.)
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/testing.h"
#include "model/testing.h"

namespace denseformer {
namespace {

constexpr const char* kPatterns[] = {
    "none",   "1x1",   "4x1",         "2x3",
    "last:2", "final", "grouped:1x3", "mask:11/000/1001/00001/000000/1010101"};

TEST(ModelTest, EveryPatternStartsAsThePlainTransformer) {
  Model plain(SmallConfig("none"), DType::kF32, ModelUse::kInference);
  plain.Initialize(5);
  const RandomBatch batch(plain.config(), 3, 17, 2);
  const std::vector<float> expected = RunLogits(plain, batch);
  for (const char* pattern : kPatterns) {
    for (const bool gains : {false, true}) {
      Model model(SmallConfig(pattern, gains), DType::kF32, ModelUse::kInference);
      model.Initialize(5);
      EXPECT_TRUE(SameBits(RunLogits(model, batch), expected)) << pattern << ", gains " << gains;
    }
  }
}

TEST(ModelTest, RepeatedPassesGiveTheSameBits) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    for (const char* pattern : {"none", "1x1", "2x3"}) {
      for (const int threads : {1, 2, 3}) {
        const ThreadsGuard guard(threads);
        Model model = RandomModel(SmallConfig(pattern, true, true), compute);
        const RandomBatch batch(model.config(), 4, 19, 3);
        const PassResult first = RunPass(model, batch);
        for (int repeat = 0; repeat < 3; ++repeat) {
          const PassResult again = RunPass(model, batch);
          EXPECT_EQ(again.loss, first.loss);
          EXPECT_TRUE(SameBits(again.gradients, first.gradients))
              << pattern << " " << DTypeName(compute) << " " << threads << " threads";
        }
      }
    }
  }
}

TEST(ModelTest, ThreadsAgree) {
  for (const char* pattern : kPatterns) {
    Model model = RandomModel(SmallConfig(pattern, true, true));
    const RandomBatch batch(model.config(), 5, 20, 3);
    PassResult one;
    std::vector<float> logits;
    {
      const ThreadsGuard guard(1);
      one = RunPass(model, batch);
      logits = RunLogits(model, batch);
    }
    for (const int threads : {2, 5}) {
      const ThreadsGuard guard(threads);
      const PassResult more = RunPass(model, batch);
      EXPECT_NEAR(more.loss, one.loss, 1e-6 * one.loss);
      const std::vector<float> more_logits = RunLogits(model, batch);
      EXPECT_LE(RelativeError(std::span<const float>(more_logits), std::span<const float>(logits)),
                1e-6);
      // Gains and alphas are the few weights that reduce over everything, so that their gradients
      // may cancel: each kind is compared as one vector.
      std::map<ParameterGroup, double> largest, difference;
      for (const Parameter& parameter : model.table().all()) {
        const std::span<const float> got = Slice(std::span<const float>(more.gradients), parameter);
        const std::span<const float> expected =
            Slice(std::span<const float>(one.gradients), parameter);
        if (parameter.group != ParameterGroup::kGain && parameter.group != ParameterGroup::kDwa) {
          EXPECT_LE(RelativeError(got, expected), 1e-6)
              << pattern << " " << threads << " threads: " << parameter.name;
        }
        for (size_t i = 0; i < got.size(); ++i) {
          double& most = largest[parameter.group];
          most = std::max(most, std::abs(static_cast<double>(expected[i])));
          double& worst = difference[parameter.group];
          worst = std::max(worst, std::abs(static_cast<double>(got[i]) - expected[i]));
        }
      }
      for (const auto& [group, worst] : difference) {
        EXPECT_LE(worst, 1e-6 * largest[group])
            << pattern << " " << threads << " threads: " << ParameterGroupName(group);
      }
    }
  }
}

TEST(ModelTest, OneActivationsServesEveryShape) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    Model model = RandomModel(SmallConfig("2x3", true, true), compute);
    Activations shared(model, 3, 20, ModelUse::kTraining);
    for (const auto& [sequences, length] : std::vector<std::pair<int64_t, int64_t>>{
             {3, 20}, {1, 1}, {60, 1}, {2, 7}, {3, 20}, {8, 7}, {1, 20}}) {
      const RandomBatch batch(model.config(), sequences, length, 3);
      const PassResult expected = RunPass(model, batch);
      const PassResult got = RunPass(model, batch, shared);
      EXPECT_EQ(got.loss, expected.loss) << sequences << " x " << length;
      EXPECT_TRUE(SameBits(got.gradients, expected.gradients)) << sequences << " x " << length;
    }
  }
}

TEST(ModelTest, TrainingAndInferenceGiveTheSameLoss) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    for (const char* pattern : kPatterns) {
      Model model = RandomModel(SmallConfig(pattern, true, true), compute);
      const RandomBatch batch(model.config(), 3, 19, 3, /*ignore_every=*/4);
      Activations inference(model, 3, 19, ModelUse::kInference);
      EXPECT_EQ(ForwardLoss(model, batch.batch(), inference), RunPass(model, batch).loss)
          << pattern << " " << DTypeName(compute);
    }
  }
}

TEST(ModelTest, LossesAndHitsBelongToTheLogits) {
  Model model = RandomModel(SmallConfig("1x1"));
  const RandomBatch batch(model.config(), 3, 19, 3, /*ignore_every=*/4);
  const size_t rows = batch.tokens.size(), vocab_size = model.config().vocab_size;
  std::vector<float> losses(rows, -1);
  std::vector<uint8_t> correct(rows, 9);
  Activations activations(model, 3, 19, ModelUse::kInference);
  const double loss = ForwardLoss(model, batch.batch(), activations, losses, correct);
  const std::vector<float> logits = RunLogits(model, batch);
  double sum = 0;
  int count = 0;
  for (size_t n = 0; n < rows; ++n) {
    const float* row = logits.data() + n * vocab_size;
    if (batch.targets[n] == kIgnoreTarget) {
      EXPECT_EQ(losses[n], 0);
      EXPECT_EQ(correct[n], 0);
      continue;
    }
    double exponentials = 0;
    for (size_t v = 0; v < vocab_size; ++v) exponentials += std::exp(static_cast<double>(row[v]));
    const double expected = std::log(exponentials) - row[batch.targets[n]];
    EXPECT_NEAR(losses[n], expected, 1e-5 * (1 + expected));
    EXPECT_EQ(correct[n], std::max_element(row, row + vocab_size) - row == batch.targets[n]);
    sum += expected;
    ++count;
  }
  EXPECT_NEAR(loss, sum / count, 1e-5 * loss);
}

TEST(ModelTest, NothingToPredictGivesZero) {
  Model model = RandomModel(SmallConfig("1x1", true, true));
  const RandomBatch batch(model.config(), 2, 9, 3, /*ignore_every=*/1);
  const PassResult result = RunPass(model, batch);
  EXPECT_EQ(result.loss, 0);
  for (float gradient : result.gradients) EXPECT_EQ(gradient, 0);
}

TEST(ModelTest, GradientsAddUpAndScale) {
  Model model = RandomModel(SmallConfig("4x1", true, true));
  const RandomBatch batch(model.config(), 2, 9, 3);
  Activations activations(model, 2, 9, ModelUse::kTraining);
  const PassResult once = RunPass(model, batch, activations);
  const PassResult half = RunPass(model, batch, activations, 0.5f);
  EXPECT_EQ(half.loss, once.loss);
  ForwardBackward(model, batch.batch(), DropoutOptions(), 0.5f, Gradients::kAdd, activations);
  for (const Parameter& parameter : model.table().all()) {
    const std::span<const float> sum = model.gradients();
    EXPECT_LE(RelativeError(Slice(sum, parameter),
                            Slice(std::span<const float>(once.gradients), parameter)),
              2e-6)
        << parameter.name;
  }
}

TEST(ModelTest, EarlierPositionsDoNotSeeLaterOnes) {
  for (const char* pattern : {"none", "1x1"}) {
    Model model = RandomModel(SmallConfig(pattern));
    RandomBatch batch(model.config(), 1, 20, 3);
    const std::vector<float> before = RunLogits(model, batch);
    batch.tokens[11] = (batch.tokens[11] + 1) % model.config().vocab_size;
    const std::vector<float> after = RunLogits(model, batch);
    const size_t split = 11 * static_cast<size_t>(model.config().vocab_size);
    EXPECT_TRUE(std::equal(before.begin(), before.begin() + split, after.begin()));
    EXPECT_FALSE(std::equal(before.begin() + split, before.end(), after.begin() + split));
  }
}

TEST(ModelTest, SequencesOfABatchAreIndependent) {
  Model model = RandomModel(SmallConfig("1x1"));
  const RandomBatch batch(model.config(), 4, 13, 3);
  const std::vector<float> together = RunLogits(model, batch);
  const size_t size = 13 * static_cast<size_t>(model.config().vocab_size);
  for (int64_t s = 0; s < 4; ++s) {
    RandomBatch alone(model.config(), 1, 13, 0);
    alone.tokens.assign(batch.tokens.begin() + s * 13, batch.tokens.begin() + (s + 1) * 13);
    const std::vector<float> logits = RunLogits(model, alone);
    EXPECT_LE(RelativeError(std::span<const float>(logits),
                            std::span<const float>(together).subspan(s * size, size)),
              2e-6);
  }
}

TEST(ModelTest, ObserverSeesTheDepthOutputs) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    for (const char* pattern : kPatterns) {
      Model model = RandomModel(SmallConfig(pattern), compute);
      const RandomBatch batch(model.config(), 2, 9, 3);
      Activations activations(model, 2, 9, ModelUse::kInference);
      std::vector<std::vector<float>> x, y;
      const DepthObserver observer = [&](int depth, const Tensor& x_i, const Tensor& y_i) {
        EXPECT_EQ(depth, static_cast<int>(x.size()));
        x.emplace_back(x_i.f32(), x_i.f32() + x_i.count());
        y.emplace_back(y_i.f32(), y_i.f32() + y_i.count());
      };
      const double loss = ForwardLoss(model, batch.batch(), activations, {}, {}, observer);
      EXPECT_EQ(loss, ForwardLoss(model, batch.batch(), activations)) << pattern;
      ASSERT_EQ(x.size(), 7u);
      for (int i = 0; i <= 6; ++i) {
        std::vector<float> expected = x[i];
        if (model.pattern().has_module(i)) {
          std::fill(expected.begin(), expected.end(), 0.0f);
          const float* alpha = model.tensors().alphas[i].f32();
          for (int j : model.pattern().sources(i)) {
            for (size_t n = 0; n < expected.size(); ++n) expected[n] += *alpha * x[j][n];
            ++alpha;
          }
        }
        // In bf16 the averages read rounded copies of the older outputs.
        EXPECT_LE(RelativeError(std::span<const float>(y[i]), std::span<const float>(expected)),
                  compute == DType::kF32 ? 1e-6 : 1e-2)
            << pattern << " depth " << i;
      }
    }
  }
}

TEST(ModelTest, Bf16IsCloseToFp32) {
  ModelConfig config;
  config.n_layer = 12;
  config.n_head = 3;
  config.n_embd = 96;
  config.vocab_size = 512;
  config.seq_len = 64;
  for (const char* pattern : {"none", "1x1", "4x1", "4x5", "final", "last:4"}) {
    for (const bool gains : {false, true}) {
      config.dwa = pattern;
      config.gains = gains;
      Model exact(config, DType::kF32, ModelUse::kTraining);
      exact.Initialize(3);
      // Depth weights as training leaves them: some away from 0 and 1.
      Random random(4);
      for (const Parameter& parameter : exact.table().all()) {
        if (parameter.group != ParameterGroup::kDwa && parameter.group != ParameterGroup::kGain) {
          continue;
        }
        for (int64_t i = 0; i < parameter.count(); ++i) {
          exact.weights()[parameter.offset + i] += 0.1f * random.Normal();
        }
      }
      exact.WeightsChanged();
      Model rounded(config, DType::kBF16, ModelUse::kTraining);
      std::copy(exact.weights().begin(), exact.weights().end(), rounded.weights().begin());
      rounded.WeightsChanged();
      const RandomBatch batch(config, 4, 64, 3);
      const PassResult expected = RunPass(exact, batch), got = RunPass(rounded, batch);
      EXPECT_NEAR(got.loss, expected.loss, 0.005 * expected.loss) << pattern;
      for (const Parameter& parameter : exact.table().all()) {
        EXPECT_GE(Cosine(Slice(std::span<const float>(got.gradients), parameter),
                         Slice(std::span<const float>(expected.gradients), parameter)),
                  0.995)
            << pattern << " gains " << gains << ": " << parameter.name;
      }
    }
  }
}

TEST(ModelTest, WrongBatchesAreNamed) {
  Model model = RandomModel(SmallConfig("1x1"));
  Activations activations(model, 2, 10, ModelUse::kInference);
  const auto error = [&](auto&& change) {
    RandomBatch random(model.config(), 2, 10, 3);
    Batch batch = random.batch();
    change(random, batch);
    return ErrorOf([&] { ForwardLoss(model, batch, activations); });
  };
  EXPECT_EQ(error([](RandomBatch&, Batch&) {}), "no error");
  EXPECT_EQ(error([](RandomBatch& r, Batch&) { r.tokens[13] = 61; }),
            "token 61 at position 3 of sequence 1: expected 0 to 60 (the model's vocabulary)");
  EXPECT_EQ(error([](RandomBatch& r, Batch&) { r.tokens[0] = -1; }),
            "token -1 at position 0 of sequence 0: expected 0 to 60 (the model's vocabulary)");
  EXPECT_EQ(error([](RandomBatch& r, Batch&) { r.targets[19] = -2; }),
            "target -2 at position 9 of sequence 1: expected 0 to 60, or -1 for none");
  EXPECT_EQ(error([](RandomBatch&, Batch& b) { b.length = 21; }),
            "batch of 2 sequences of 21 tokens: expected at least one sequence of 1 to 20 tokens "
            "(the model's seq_len)");
  EXPECT_EQ(error([](RandomBatch&, Batch& b) { b.sequences = 0; }),
            "batch of 0 sequences of 10 tokens: expected at least one sequence of 1 to 20 tokens "
            "(the model's seq_len)");
  EXPECT_EQ(error([](RandomBatch&, Batch& b) { b.targets = b.targets.first(19); }),
            "batch: 20 tokens and 19 targets, expected 2 x 10 of each");
  EXPECT_EQ(error([](RandomBatch&, Batch& b) { b.targets = {}; }),
            "batch: targets are needed for a loss");
  const RandomBatch longer(model.config(), 1, 11, 3), more(model.config(), 3, 10, 3);
  EXPECT_EQ(ErrorOf([&] { ForwardLoss(model, longer.batch(), activations); }),
            "batch of 1 sequences of 11 tokens: memory was planned for up to 20 tokens in "
            "sequences of 1 to 10");
  EXPECT_EQ(ErrorOf([&] { ForwardLoss(model, more.batch(), activations); }),
            "batch of 3 sequences of 10 tokens: memory was planned for up to 20 tokens in "
            "sequences of 1 to 10");
  EXPECT_EQ(ErrorOf([&] { Activations(model, 1, 21, ModelUse::kInference); }),
            "batch of 1 sequences of 21 tokens: expected at least one sequence of 1 to 20 tokens");
}

}  // namespace
}  // namespace denseformer
