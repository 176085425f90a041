#include "analysis/similarity.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "base/random.h"
#include "base/testing.h"
#include "model/forward.h"

namespace denseformer {
namespace {

TEST(Similarity, AgreesWithAPlainLoop) {
  ModelConfig config = ModelConfig::Preset("test");
  config.dwa = "1x1";
  Model model(config, DType::kF32, ModelUse::kInference);
  model.Initialize(1);
  Random random(2);
  for (const Tensor& alphas : model.tensors().alphas) {
    for (int64_t i = 0; !alphas.empty() && i < alphas.count(); ++i)
      alphas.f32()[i] += 0.3f * random.Normal();
  }
  const int64_t length = config.seq_len, windows = 3;
  std::vector<uint16_t> tokens(length * windows + 11);
  for (uint16_t& token : tokens) token = static_cast<uint16_t>(random.Below(config.vocab_size));
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/val.bin";
  WriteFileAtomic(path, {reinterpret_cast<const char*>(tokens.data()), tokens.size() * 2});
  const TokenFile file(path);
  const DepthSimilarity got = MeasureSimilarity(model, file, /*most_tokens=*/1 << 20);
  EXPECT_EQ(got.tokens, length * windows);

  std::vector<double> cosine(config.n_layer + 1), norm_x(config.n_layer + 1),
      norm_y(config.n_layer + 1);
  Activations activations(model, 1, length, ModelUse::kInference);
  for (int64_t window = 0; window < windows; ++window) {
    std::vector<int32_t> inputs(tokens.begin() + window * length,
                                tokens.begin() + (window + 1) * length);
    std::vector<float> first, logits(length * config.vocab_size);
    ForwardLogits(model, {inputs, {}, 1, length}, activations,
                  Tensor(logits.data(), {length, config.vocab_size}),
                  [&](int i, const Tensor& x, const Tensor& y) {
                    if (i == 0) first.assign(x.f32(), x.f32() + x.count());
                    for (int64_t n = 0; n < length; ++n) {
                      double xx = 0, yy = 0, ff = 0, yf = 0;
                      for (int64_t k = 0; k < config.n_embd; ++k) {
                        const double a = x.f32()[n * config.n_embd + k],
                                     b = y.f32()[n * config.n_embd + k],
                                     f = first[n * config.n_embd + k];
                        xx += a * a, yy += b * b, ff += f * f, yf += b * f;
                      }
                      const double count = static_cast<double>(length * windows);
                      cosine[i] += yf / std::sqrt(yy * ff) / count;
                      norm_x[i] += std::sqrt(xx) / count;
                      norm_y[i] += std::sqrt(yy) / count;
                    }
                  });
  }
  for (int i = 0; i <= config.n_layer; ++i) {
    EXPECT_NEAR(got.cosine_y[i], cosine[i], 1e-5) << i;
    EXPECT_NEAR(got.norm_x[i], norm_x[i], 1e-5 * norm_x[i]) << i;
    EXPECT_NEAR(got.norm_y[i], norm_y[i], 1e-5 * norm_y[i]) << i;
  }
  EXPECT_NEAR(got.cosine_y[0], 1, 1e-9);
}

}  // namespace
}  // namespace denseformer
