// Loss, logits and every gradient of every variant against libtorch.
//
// Random weights, alphas and gains; the error of a tensor is its largest difference relative to the
// largest value of the tensor. The oracle computes in double precision, so what is measured is the
// error of the engine alone; one test compares with libtorch's own fp32 as well.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "model/testing.h"
#include "oracle/torch_oracle.h"

namespace denseformer {
namespace {

constexpr double kTolerance = 2e-5;
// A gradient of a model with a mixer may be further off where libtorch's own fp32 is: up to this
// multiple of the error that it has there, against double. Measurement showed that it is rounding:
// in each mixer the median error of a tensor is 3e-7 to 9e-7, and so is libtorch's. Of mixer
// tensors beyond kTolerance the ratio is at most 3.2, but up to 11 for those of 1 to 4 numbers,
// where either error may be small by chance; so the tensors of a module share one error.
constexpr double kTimesLibtorch = 16;

struct Case {
  ModelConfig config;
  int64_t sequences;
  int64_t length;
  int ignore_every = 0;
};

std::string Describe(const Case& c) {
  return fmt::format(
      "d={} H={} D={} V={} dwa={} mixer={} streams={} norm={} gains={} bias={} B={} T={} ignore={}",
      c.config.n_layer, c.config.n_head, c.config.n_embd, c.config.vocab_size, c.config.dwa,
      c.config.mixer, c.config.streams, c.config.mixer_norm, c.config.gains, c.config.bias,
      c.sequences, c.length, c.ignore_every);
}

double LargestOf(std::span<const double> values) {
  double largest = 0;
  for (double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

// Largest error of libtorch's fp32 in the gradient of a parameter; in all those of its module if it
// belongs to one.
double LibtorchError(const Model& model, const Parameter& parameter, const OracleResult& single,
                     const OracleResult& expected) {
  double largest = 0;
  for (const Parameter& p : model.table().all()) {
    const bool same_module = p.mixes() && parameter.mixes() && p.block == parameter.block;
    if (p.name != parameter.name && !same_module) continue;
    for (int64_t e = p.offset; e < p.offset + p.count(); ++e) {
      largest = std::max(largest, std::abs(single.gradients[e] - expected.gradients[e]));
    }
  }
  return largest;
}

// `batch`: of a model with a mixer, for which libtorch's fp32 is asked where it matters; null for
// others.
void ExpectGradientsAgree(const Model& model, const PassResult& got, const OracleResult& expected,
                          const RandomBatch* batch = nullptr) {
  std::optional<OracleResult> single;
  EXPECT_NEAR(got.loss, expected.loss, kTolerance * std::abs(expected.loss));
  for (const Parameter& parameter : model.table().all()) {
    const std::span<const float> gradient = Slice(std::span<const float>(got.gradients), parameter);
    const std::span<const double> wanted =
        Slice(std::span<const double>(expected.gradients), parameter);
    double error = RelativeError(gradient, wanted);
    if (error > kTolerance && batch != nullptr) {
      if (!single) single = RunOracle(model, batch->batch(), OraclePrecision::kSingle);
      const double allowed = kTimesLibtorch * LibtorchError(model, parameter, *single, expected);
      if (error * LargestOf(wanted) <= allowed) continue;
    }
    if (error > kTolerance && expected.product_norms.contains(parameter.name)) {
      // An alpha or a gain sums products over all rows and columns, and a tensor of one or two of
      // them may cancel as a whole: by chance, or because the weight only scales what a LayerNorm
      // normalizes (then the gradient is 0). The products then tell what is large.
      error *= LargestOf(wanted) / expected.product_norms.at(parameter.name);
      EXPECT_LE(parameter.count(), 2) << "gradient of " << parameter.name;
    }
    EXPECT_LE(error, kTolerance) << "gradient of " << parameter.name;
  }
}

void ExpectAgreement(const Case& c, OraclePrecision precision, uint64_t seed) {
  SCOPED_TRACE(Describe(c));
  Model model(c.config, DType::kF32, ModelUse::kTraining);
  RandomizeWeights(model, seed);
  const RandomBatch batch(c.config, c.sequences, c.length, seed, c.ignore_every);
  const OracleResult expected = RunOracle(model, batch.batch(), precision);
  const std::vector<float> logits = RunLogits(model, batch);
  EXPECT_LE(RelativeError(std::span<const float>(logits), std::span<const double>(expected.logits)),
            kTolerance)
      << "logits";
  ExpectGradientsAgree(model, RunPass(model, batch), expected,
                       model.mixer().plain() ? nullptr : &batch);
}

// Every kind of pattern that the depth allows, and a mask that mixes rows of every kind.
std::vector<std::string> Patterns(int depth) {
  std::vector<std::string> patterns = {"none", "1x1", "2x1", "4x1", "last:1", "last:3", "final"};
  for (int period : {2, 3, 5}) {
    if (period > depth) continue;
    patterns.push_back(fmt::format("4x{}", period));
    patterns.push_back(fmt::format("1x{}", period));
    if (depth % period == 0) {
      patterns.push_back(fmt::format("grouped:1x{}", period));
      patterns.push_back(fmt::format("grouped:2x{}", period));
    }
  }
  std::string mask = "mask:";
  for (int i = 1; i <= depth; ++i) {
    std::string row(i + 1, '0');
    if (i % 4 != 2) {
      for (int j = 0; j <= i; ++j) row[j] = j == i || (i * 7 + j * 5) % 3 == 0 ? '1' : '0';
    }
    mask += (i > 1 ? "/" : "") + row;
  }
  patterns.push_back(mask);
  return patterns;
}

class OracleDepthTest : public testing::TestWithParam<int> {};

TEST_P(OracleDepthTest, EveryPattern) {
  // Widths and head counts that no vector length divides, and some that all do.
  constexpr std::pair<int, int> kWidths[] = {{6, 1}, {24, 3}, {40, 5}, {96, 3}, {18, 9}, {64, 2}};
  constexpr int64_t kLengths[] = {1, 7, 33};
  constexpr int kVocabularies[] = {11, 65, 128};
  const int depth = GetParam();
  int number = depth;  // rotates the sizes, so that each pattern meets each of them at some depth
  for (const std::string& pattern : Patterns(depth)) {
    for (const bool extras : {false, true}) {
      ++number;
      ModelConfig config;
      config.n_layer = depth;
      std::tie(config.n_embd, config.n_head) = kWidths[number % 6];
      config.vocab_size = kVocabularies[number / 2 % 3];
      config.seq_len = 40;
      config.dwa = pattern;
      config.gains = extras;
      config.bias = extras && number % 4 < 2;
      ExpectAgreement({config, 1 + number % 3, kLengths[number / 3 % 3], number % 5 == 0 ? 3 : 0},
                      OraclePrecision::kDouble, number);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Depths, OracleDepthTest, testing::Range(1, 14));

// Every mixer with every set of streams on every kind of pattern.
using MixerCase = std::tuple<const char*, const char*>;  // mixer, with its norm; streams
class OracleMixerTest : public testing::TestWithParam<MixerCase> {};

TEST_P(OracleMixerTest, EveryPattern) {
  constexpr std::pair<int, int> kWidths[] = {{6, 1}, {24, 3}, {40, 5}, {96, 3}, {18, 9}};
  constexpr int kDepth = 6;
  const auto [mixer, streams] = GetParam();
  int number = 0;
  for (const std::string& pattern : Patterns(kDepth)) {
    if (pattern == "none") continue;
    ++number;
    ModelConfig config;
    config.n_layer = kDepth;
    std::tie(config.n_embd, config.n_head) = kWidths[number % 5];
    config.vocab_size = 65;
    config.seq_len = 40;
    config.dwa = pattern;
    config.gains = number % 2 == 0;
    config.bias = number % 3 == 0;
    const bool prepost = std::string(mixer) == "prepost";
    config.mixer = prepost ? "dynamic" : mixer;
    config.mixer_norm = prepost ? "prepost" : "none";
    config.streams = streams;
    ExpectAgreement({config, 1 + number % 3, number % 2 == 0 ? 7 : 17, number % 5 == 0 ? 3 : 0},
                    OraclePrecision::kDouble, number);
  }
}

INSTANTIATE_TEST_SUITE_P(Mixers, OracleMixerTest,
                         testing::Combine(testing::Values("static", "dynamic", "prepost",
                                                          "attention", "attnres"),
                                          testing::Values("r", "rv", "rqkv")),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" +
                                  std::get<1>(info.param);
                         });

class OracleLengthTest : public testing::TestWithParam<int> {};

TEST_P(OracleLengthTest, WidthsAndBatchSizes) {
  constexpr std::pair<int, int> kWidths[] = {{6, 3}, {24, 1}, {40, 5}, {96, 3}, {192, 3}};
  const int length = GetParam();
  for (const auto& [width, heads] : kWidths) {
    for (const int64_t sequences : {1, 2, 5}) {
      ModelConfig config;
      config.n_layer = 3;
      config.n_embd = width;
      config.n_head = heads;
      config.vocab_size = 97;
      config.seq_len = 256;
      config.dwa = "1x1";
      config.gains = sequences == 2;
      config.bias = sequences == 5;
      ExpectAgreement({config, sequences, length}, OraclePrecision::kDouble, width + heads);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Lengths, OracleLengthTest, testing::Values(1, 7, 33, 256));

TEST(OracleTest, LogitsInSeveralChunks) {
  // More rows than one chunk of logits holds (head.h), so that the chunks are put together.
  ModelConfig config = ModelConfig::Preset("test");
  config.seq_len = 256;
  config.dwa = "4x2";
  ExpectAgreement({config, 10, 256, 7}, OraclePrecision::kDouble, 5);
}

TEST(OracleTest, SinglePrecisionOfLibtorch) {
  for (const char* pattern : {"none", "1x1", "4x5", "grouped:2x3", "last:4", "final"}) {
    for (const bool gains : {false, true}) {
      ModelConfig config;
      config.n_layer = 12;
      config.n_embd = 48;
      config.n_head = 3;
      config.vocab_size = 200;
      config.seq_len = 256;
      config.dwa = pattern;
      config.gains = gains;
      ExpectAgreement({config, 2, 256}, OraclePrecision::kSingle, 9);
    }
  }
}

TEST(OracleTest, InitialWeights) {
  for (const char* pattern : {"none", "1x1", "final"}) {
    ModelConfig config = ModelConfig::Preset("test");
    config.dwa = pattern;
    Model model(config, DType::kF32, ModelUse::kTraining);
    model.Initialize(1);
    const RandomBatch batch(config, 3, config.seq_len, 2);
    const OracleResult expected = RunOracle(model, batch.batch(), OraclePrecision::kDouble);
    SCOPED_TRACE(pattern);
    ExpectGradientsAgree(model, RunPass(model, batch), expected);
  }
}

}  // namespace
}  // namespace denseformer
