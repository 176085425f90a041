#include "analysis/token_weights.h"

#include <gtest/gtest.h>

#include <cmath>

#include "analysis/observe.h"
#include "analysis/study.h"
#include "analysis/testing.h"
#include "base/error_testing.h"
#include "model/testing.h"

namespace denseformer {
namespace {

class TokenWeightsTest : public TrainedRunTest {
 protected:
  TokenWeightsTest() {
    WriteTokens(scratch_ / "tokens", 300, 40, 5);
    file_.emplace(scratch_ / "tokens");
  }
  static ModelConfig Config(const char* mixer, const char* streams, const char* dwa = "1x1") {
    ModelConfig config = SmallConfig(dwa, /*gains=*/false, /*bias=*/false);
    config.mixer = mixer;
    config.streams = streams;
    config.vocab_size = 64;
    return config;
  }
  TokenWeights Measure(const Model& model) const {
    return MeasureTokenWeights(model, *file_, 1000, "model");
  }

  std::optional<TokenFile> file_;
};

TEST_F(TokenWeightsTest, StaticWeightsOfEveryStream) {
  const Model model = RandomModel(Config("static", "rqkv", "2x1"));
  const TokenWeights weights = Measure(model);
  ASSERT_EQ(weights.streams.size(), 4u);
  const int d = model.config().n_layer;
  for (size_t c = 0; c < 4; ++c) {
    const StreamWeights& stream = weights.streams[c];
    EXPECT_EQ(stream.stream, std::string(1, "rqkv"[c]));
    for (int i = 1; i < d; ++i) {
      const std::vector<int>& sources = model.pattern().sources(i);
      for (size_t k = 0; k < sources.size(); ++k) {
        const float b = model.tensors().alphas[i].f32()[c * sources.size() + k];
        EXPECT_NEAR(stream.mean.value[i][sources[k]], b, 1e-9);
        EXPECT_NEAR(stream.spread.value[i][sources[k]], 0, 1e-7);
      }
      EXPECT_TRUE(std::isnan(stream.mean.value[i][i - 1]));
    }
    // After the last block there is the residual stream only.
    EXPECT_EQ(std::isnan(stream.entropy[d]), c > 0);
  }
}

// At w = 0 the softmax is uniform; the gate is part of the weight.
TEST_F(TokenWeightsTest, UniformAttention) {
  for (const char* mixer : {"attention", "attnres"}) {
    Model model(Config(mixer, "rv"), DType::kF32, ModelUse::kInference);
    model.Initialize(1);
    for (const MixerTensors& tensors : model.tensors().mixers) {
      if (tensors.gate.empty()) continue;
      for (int64_t c = 0; c < tensors.gate.count(); ++c) tensors.gate.f32()[c] = -0.5f;
    }
    const double gate = std::string(mixer) == "attention" ? -0.5 : 1;
    const TokenWeights weights = Measure(model);
    for (int i = 1; i < model.config().n_layer; ++i) {
      for (const StreamWeights& stream : weights.streams) {
        EXPECT_NEAR(stream.entropy[i], std::log(i + 1), 1e-5);
        EXPECT_NEAR(stream.newest[i], 1.0 / (i + 1), 1e-6);
        EXPECT_NEAR(stream.mean.value[i][0], gate / (i + 1), 1e-6);
      }
    }
  }
}

TEST_F(TokenWeightsTest, DynamicWeightsFollowTheFormula) {
  const Model model = RandomModel(Config("dynamic", "r"));
  const int i = 2;
  const size_t n = 3, D = static_cast<size_t>(model.config().n_embd);
  const MixerTensors& mixer = model.tensors().mixers[i];
  std::vector<double> sum(n), squares(n);
  const int64_t tokens =
      ObserveDepths(model, *file_, 1000, [&](int at, const Tensor& x, const Tensor&, Activations&) {
        if (at != i) return;
        for (int64_t t = 0; t < x.rows(); ++t) {
          const float* row = x.f32() + t * static_cast<int64_t>(D);
          double square = 0;
          for (size_t e = 0; e < D; ++e) square += static_cast<double>(row[e]) * row[e];
          const double rstd = 1 / std::sqrt(square / static_cast<double>(D) + 1e-6);
          std::vector<double> hidden(n);
          for (size_t u = 0; u < n; ++u) {
            double z = 0;
            for (size_t e = 0; e < D; ++e) z += mixer.w1.f32()[u * D + e] * (row[e] * rstd);
            hidden[u] = 0.5 * z * (1 + std::erf(z / std::sqrt(2.0)));
          }
          for (size_t k = 0; k < n; ++k) {
            double a = model.tensors().alphas[i].f32()[k];
            for (size_t u = 0; u < n; ++u) a += mixer.w2.f32()[k * n + u] * hidden[u];
            sum[k] += a;
            squares[k] += a * a;
          }
        }
      });
  const StreamWeights stream = Measure(model).streams[0];
  for (size_t k = 0; k < n; ++k) {
    const double mean = sum[k] / static_cast<double>(tokens);
    const double spread = std::sqrt(squares[k] / static_cast<double>(tokens) - mean * mean);
    EXPECT_NEAR(stream.mean.value[i][k], mean, 1e-5);
    EXPECT_NEAR(stream.spread.value[i][k], spread, 1e-5);
    EXPECT_GT(spread, 1e-3);
  }
}

TEST_F(TokenWeightsTest, PlainModelsHaveNone) {
  for (const char* dwa : {"none", "1x1"}) {
    const Model model = RandomModel(Config("static", "r", dwa));
    ExpectError(ErrorCode::kInvalid, "see the study weights", [&] { Measure(model); });
  }
}

// The study of a trained run: JSON, CSV, sentences and charts.
TEST_F(TokenWeightsTest, Study) {
  const Study& study = *FindStudy("mixing");
  const std::string path = TrainRun("run", "1x1", 1, 4, 2, "dynamic", "rv");
  const RunData run = ReadRun(path);
  ASSERT_TRUE(study.available(run));
  EXPECT_FALSE(FindStudy("weights")->available(run));
  const StudyJson json = study.run(run, {});
  CheckStudy(study, json, "here");
  const std::string csv = study.csv(json);
  EXPECT_EQ(csv.substr(0, csv.find('\n')), "stream,block,source,mean,spread");
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1 + 14 + 9);  // no v after the last block
  EXPECT_EQ(study.sentences(json).size(), 3u);
  EXPECT_NE(study.sentences(json)[1].find("Stream r: the newest source has"), std::string::npos);
  EXPECT_EQ(study.charts({{"run", json}}).size(), 5u);
  StudyJson damaged = json;
  damaged["streams"][1]["spread"].erase(0);
  ExpectError(ErrorCode::kCorrupt, "'spread' has 4 rows, expected 5",
              [&] { CheckStudy(study, damaged, "here"); });
}

// Static weights of several streams can be pruned; those of tokens cannot.
TEST_F(TokenWeightsTest, PruningOfStaticStreams) {
  const Study& study = *FindStudy("pruning");
  StudyOptions options;
  options.percents = {0, 50};
  const RunData fixed = ReadRun(TrainRun("static", "1x1", 1, 4, 2, "static", "rv"));
  ASSERT_TRUE(study.available(fixed));
  EXPECT_EQ(study.run(fixed, options)["pruned"][1], 11);  // of 14 + 9
  const RunData moving = ReadRun(TrainRun("dynamic", "1x1", 1, 4, 2, "dynamic", "r"));
  EXPECT_FALSE(study.available(moving));
  ExpectError(ErrorCode::kUnsupported, "depend on the token", [&] { study.run(moving, options); });
}

}  // namespace
}  // namespace denseformer
