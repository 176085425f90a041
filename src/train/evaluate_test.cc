// Every token predicted once, whatever the batches; pruning by magnitude; diagnosis.
#include "train/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/parallel.h"
#include "base/testing.h"
#include "train/diagnosis.h"
#include "train/testing.h"

namespace denseformer {
namespace {

class EvaluateTest : public testing::Test {
 protected:
  EvaluateTest() : model_(Config(), DType::kF32, ModelUse::kTraining) {
    SetNumThreads(1);
    MakeTestData(scratch_.path());
    model_.Initialize(3);
  }
  static ModelConfig Config() {
    ModelConfig config = ModelConfig::Preset("test");
    config.dwa = "1x1";
    return config;
  }
  EvalResult Stream(int64_t sequences, const EvalOptions& options = {}) {
    Activations activations(model_, sequences, 32, ModelUse::kInference);
    return EvaluateStream(model_, TokenFile(scratch_ / "val.bin"), activations, options);
  }

  const TemporaryDirectory scratch_;
  Model model_;
};

TEST_F(EvaluateTest, PredictsEachTokenOnceWhateverTheBatches) {
  const TokenFile file(scratch_ / "val.bin");
  // Window by window, each on its own.
  double sum = 0;
  Activations activations(model_, 1, 32, ModelUse::kInference);
  for (int64_t begin = 0; begin + 1 < file.size(); begin += 32) {
    const int64_t length = std::min<int64_t>(32, file.size() - 1 - begin);
    std::vector<int32_t> tokens(length), targets(length);
    file.Read(begin, length, tokens.data());
    file.Read(begin + 1, length, targets.data());
    sum += static_cast<double>(length) *
           ForwardLoss(model_, {tokens, targets, 1, length}, activations);
  }
  for (const int64_t sequences : {1, 3, 64}) {
    const EvalResult result = Stream(sequences);
    EXPECT_EQ(result.tokens, 999);
    EXPECT_NEAR(result.loss, sum / 999, 1e-6);
    EXPECT_NEAR(result.perplexity(), std::exp(sum / 999), 1e-3);
  }
}

TEST_F(EvaluateTest, LimitsAndProgress) {
  EvalOptions options;
  options.max_tokens = 40;
  EXPECT_EQ(Stream(4, options).tokens, 40);
  options.max_tokens = 5000;
  EXPECT_EQ(Stream(4, options).tokens, 999);
  options.seq_len = 33;
  EXPECT_EQ(ErrorOf([&] { Stream(4, options); }),
            "evaluation: sequences of 33 tokens, but the model's are at most 32");
  options = {};
  options.progress = [](double) { return false; };
  EXPECT_EQ(ErrorOf([&] { Stream(4, options); }), "evaluation: stopped by a signal");
}

TEST_F(EvaluateTest, BitsPerByteCountsTheBytesOfThePredictedTokens) {
  const std::vector<int32_t> ids = {72, 105, 256, 72, 105};  // "Hi", the end of text, "Hi"
  std::string bytes;
  for (const int32_t id : ids) bytes += {static_cast<char>(id), static_cast<char>(id >> 8)};
  WriteFileAtomic(scratch_ / "hi.bin", bytes);
  const Tokenizer tokenizer = Tokenizer::Bytes();
  Activations activations(model_, 1, 32, ModelUse::kInference);
  const TokenFile file(scratch_ / "hi.bin");
  const EvalResult result = EvaluateStream(model_, file, activations, {}, &tokenizer);
  EXPECT_EQ(result.tokens, 4);
  EXPECT_EQ(result.bytes, 3);
  EXPECT_DOUBLE_EQ(*result.bits_per_byte(), result.loss * 4 / std::log(2.0) / 3);
  EXPECT_FALSE(EvaluateStream(model_, file, activations, {}).bits_per_byte().has_value());
}

TEST_F(EvaluateTest, PrunesTheSmallestWeights) {
  float next = 0.5f;
  for (const Tensor& alphas : model_.tensors().alphas) {
    for (int64_t i = 0; !alphas.empty() && i < alphas.count(); ++i) {
      alphas.f32()[i] = next;
      next = -next * 1.1f;
    }
  }
  EXPECT_EQ(PruneDwa(model_, 0), 0);
  EXPECT_EQ(PruneDwa(model_, 20), 2);  // of 14
  EXPECT_EQ(model_.tensors().alphas[1].f32()[0], 0);
  EXPECT_EQ(model_.tensors().alphas[1].f32()[1], 0);
  EXPECT_NE(model_.tensors().alphas[2].f32()[0], 0);
  EXPECT_EQ(PruneDwa(model_, 100), 14);
}

TEST_F(EvaluateTest, FirstBadTensorIsNamed) {
  Activations activations(model_, 2, 32, ModelUse::kTraining);
  const std::vector<int32_t> tokens(64, 5), targets(64, 6);
  const Batch batch = {tokens, targets, 2, 32};
  EXPECT_EQ(FirstBadTensor(model_, batch, activations), "no tensor");
  const float nan = std::nanf("");

  model_.gradient_tensors().blocks[2].qkv_weight.f32()[7] = nan;
  model_.gradient_tensors().blocks[1].qkv_weight.f32()[3] = nan;
  EXPECT_EQ(FirstBadTensor(model_, batch, activations),
            "gradient of transformer.h.2.attn.c_attn.weight (element 7 is nan)");

  // Finite weights whose product is not.
  const Tensor& wte = model_.tensors().wte;
  const BlockTensors& block = model_.tensors().blocks[2];
  const std::vector<float> saved(model_.weights().begin(), model_.weights().end());
  for (int64_t unit = 0; unit < block.fc_weight.rows(); ++unit) {
    const Tensor row = block.fc_weight.Rows(unit, 1);  // half of the units are positive
    std::fill_n(row.f32(), row.count(), unit % 2 == 0 ? 1e38f : -1e38f);
  }
  std::fill_n(block.mlp_proj_weight.f32(), block.mlp_proj_weight.count(), 1e38f);
  model_.WeightsChanged();
  EXPECT_EQ(FirstBadTensor(model_, batch, activations).substr(0, 23), "output of block 3 (X_3)");
  std::copy(saved.begin(), saved.end(), model_.weights().begin());
  model_.WeightsChanged();

  // Between Y_4 and the loss.
  const Tensor& norm = model_.tensors().ln_f_weight;
  std::fill_n(norm.f32(), norm.count(), 3e38f);
  EXPECT_EQ(FirstBadTensor(model_, batch, activations).substr(0, 27),
            "final LayerNorm, of Y_4 up ");
  std::fill_n(norm.f32(), norm.count(), 1e36f);
  for (int64_t e = 0; e < wte.count(); ++e) wte.f32()[e] *= 1e8f;
  model_.WeightsChanged();
  EXPECT_EQ(FirstBadTensor(model_, batch, activations).substr(0, 36),
            "logits of the tokens from 0 on (elem");
  std::copy(saved.begin(), saved.end(), model_.weights().begin());
  model_.WeightsChanged();

  model_.tensors().alphas[2].f32()[0] = 3e38f;
  wte.f32()[5 * 32] = 30;
  EXPECT_EQ(FirstBadTensor(model_, batch, activations).substr(0, 43),
            "depth-weighted average after block 2 (Y_2) ");

  wte.f32()[0] = nan;
  EXPECT_EQ(FirstBadTensor(model_, batch, activations),
            "weight transformer.wte.weight (element 0 is nan)");
}

// The streams of mixers beside the residual stream.
TEST(DiagnosisTest, FirstBadTensorOfAMixer) {
  ModelConfig config = ModelConfig::Preset("test");
  config.dwa = "1x1";
  config.streams = "rv";
  Model model(config, DType::kF32, ModelUse::kTraining);
  model.Initialize(3);
  Activations activations(model, 1, 4, ModelUse::kTraining);
  const std::vector<int32_t> tokens(4, 5), targets(4, 6);
  const Batch batch = {tokens, targets, 1, 4};
  const Tensor& wte = model.tensors().wte;
  wte.f32()[5 * config.n_embd] = 30;
  model.tensors().alphas[2].f32()[3] = 3e38f;  // [2, 3]: X_0 in stream v
  EXPECT_EQ(FirstBadTensor(model, batch, activations).substr(0, 53),
            "depth-weighted average after block 2 of stream v (ele");
}

// Weights that overflow are named before the averages that they spoil.
TEST(DiagnosisTest, FirstBadTensorIsAMixersWeights) {
  ModelConfig config = ModelConfig::Preset("test");
  config.dwa = "1x1";
  config.mixer = "dynamic";
  Model model(config, DType::kF32, ModelUse::kTraining);
  model.Initialize(3);
  Activations activations(model, 1, 4, ModelUse::kTraining);
  const std::vector<int32_t> tokens(4, 5), targets(4, 6);
  const MixerTensors& mixer = model.tensors().mixers[3];
  for (int64_t unit = 0; unit < mixer.w1.rows(); ++unit) {  // half of the units are positive
    const Tensor row = mixer.w1.Rows(unit, 1);
    std::fill_n(row.f32(), row.count(), unit % 2 == 0 ? 1e20f : -1e20f);
  }
  std::fill_n(mixer.w2.f32(), mixer.w2.count(), 1e30f);
  model.WeightsChanged();
  const std::string found = FirstBadTensor(model, {tokens, targets, 1, 4}, activations);
  EXPECT_EQ(found.substr(0, 41), "weights of the mixer after block 3 (eleme") << found;
}

}  // namespace
}  // namespace denseformer
