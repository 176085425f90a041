// Logits on a KV cache equal those of the full forward pass, for every variant, at every position.
#include "model/decode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "base/random.h"
#include "model/forward.h"

namespace denseformer {
namespace {

struct Variant {
  const char* dwa;
  bool gains, bias;
};

// The name of the case among the tests.
void PrintTo(const Variant& variant, std::ostream* out) {
  *out << variant.dwa << (variant.gains ? " gains" : "") << (variant.bias ? " bias" : "");
}

constexpr Variant kVariants[] = {
    {"none", false, false},
    {"none", true, false},
    {"1x1", false, false},
    {"2x1", false, true},
    {"4x5", false, false},
    {"last:2", true, true},
    {"final", false, false},
    {"grouped:2x2", false, false},
    {"mask:11/000/0111/00000/101001/1111111", false, false},
};

Model MakeModel(const Variant& variant, DType compute) {
  ModelConfig config;
  config.n_layer = 6;
  config.n_head = 3;
  config.n_embd = 24;
  config.vocab_size = 101;
  config.seq_len = 40;
  config.dwa = variant.dwa;
  config.gains = variant.gains;
  config.bias = variant.bias;
  Model model(config, compute, ModelUse::kInference);
  // Larger than at the start of training, so that attention is not nearly uniform.
  Random random(7);
  for (const Parameter& parameter : model.table().all()) {
    const Tensor view = ParameterTable::View(parameter, model.weights().data());
    const bool matrix = parameter.shape.rank() == 2 && parameter.group != ParameterGroup::kDwa;
    for (int64_t i = 0; i < view.count(); ++i) {
      view.f32()[i] = (matrix ? 0.3f : 0.5f) * random.Normal() + (matrix ? 0.0f : 0.5f);
    }
  }
  model.WeightsChanged();
  return model;
}

std::vector<int32_t> RandomTokens(const Model& model, int64_t n, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> tokens(n);
  for (int32_t& token : tokens)
    token = static_cast<int32_t>(random.Below(model.config().vocab_size));
  return tokens;
}

// [T, V]
std::vector<float> FullLogits(const Model& model, std::span<const int32_t> tokens) {
  const int64_t length = static_cast<int64_t>(tokens.size()), vocab = model.config().vocab_size;
  std::vector<float> logits(length * vocab);
  Activations activations(model, 1, length, ModelUse::kInference);
  ForwardLogits(model, {tokens, {}, 1, length}, activations,
                Tensor(logits.data(), {length, vocab}));
  return logits;
}

void ExpectNear(std::span<const float> got, std::span<const float> expected, double tolerance,
                const std::string& what) {
  double worst = 0, largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    worst = std::max(worst, std::abs(double{got[i]} - expected[i]));
    largest = std::max(largest, std::abs(double{expected[i]}));
  }
  EXPECT_LE(worst, tolerance * largest) << what;
}

class DecodeVariants : public ::testing::TestWithParam<std::tuple<Variant, DType>> {};

TEST_P(DecodeVariants, EveryPositionEqualsTheFullPass) {
  const auto& [variant, compute] = GetParam();
  const double tolerance = compute == DType::kF32 ? 1e-5 : 3e-2;
  const Model model = MakeModel(variant, compute);
  const int64_t vocab = model.config().vocab_size;
  const std::vector<int32_t> tokens = RandomTokens(model, model.config().seq_len, 11);
  const std::vector<float> full = FullLogits(model, tokens);
  KvCache cache(model, 1, model.config().seq_len);
  Activations activations = DecodeActivations(model, 40);
  std::vector<float> logits(vocab);
  const Tensor out(logits.data(), {1, vocab});
  // A prompt of 5, then one by one, then a chunk of 4 and one by one again.
  for (size_t at = 0; at < tokens.size();) {
    const size_t count = at == 0 ? 5 : at == 12 ? 4 : 1;
    const DecodeSequence sequence{0, std::span<const int32_t>(tokens).subspan(at, count)};
    Decode(model, {&sequence, 1}, cache, activations, out);
    at += count;
    ExpectNear(logits, std::span<const float>(full).subspan((at - 1) * vocab, vocab), tolerance,
               std::string(variant.dwa) + " at " + std::to_string(at - 1));
  }
}

TEST_P(DecodeVariants, SequencesOfDifferentLengthsTogether) {
  const auto& [variant, compute] = GetParam();
  const double tolerance = compute == DType::kF32 ? 1e-5 : 3e-2;
  const Model model = MakeModel(variant, compute);
  const int64_t vocab = model.config().vocab_size;
  const int lengths[] = {3, 17, 1, 30};
  std::vector<std::vector<int32_t>> texts;
  for (int s = 0; s < 4; ++s) texts.push_back(RandomTokens(model, lengths[s] + 3, 20 + s));
  KvCache cache(model, 4, model.config().seq_len);
  Activations activations = DecodeActivations(model, 64);
  std::vector<float> logits(4 * vocab);
  const Tensor out(logits.data(), {4, vocab});
  for (int step = 0; step < 4; ++step) {
    std::vector<DecodeSequence> sequences;
    for (int s = 3; s >= 0; --s) {  // the order of the slots does not matter
      const std::span<const int32_t> text(texts[s]);
      sequences.push_back(
          {s, step == 0 ? text.first(lengths[s]) : text.subspan(lengths[s] + step - 1, 1)});
    }
    Decode(model, sequences, cache, activations, out);
    for (int row = 0; row < 4; ++row) {
      const int s = 3 - row;
      const std::vector<float> full =
          FullLogits(model, std::span<const int32_t>(texts[s]).first(lengths[s] + step));
      ExpectNear(std::span<const float>(logits).subspan(row * vocab, vocab),
                 std::span<const float>(full).last(vocab), tolerance, variant.dwa);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DecodeVariants,
                         ::testing::Combine(::testing::ValuesIn(kVariants),
                                            ::testing::Values(DType::kF32, DType::kBF16)));

TEST(KvCacheTest, ACopiedSlotGoesOnByItself) {
  const Model model = MakeModel({"1x1", false, false}, DType::kF32);
  const int64_t vocab = model.config().vocab_size;
  const std::vector<int32_t> tokens = RandomTokens(model, 9, 5);
  KvCache cache(model, 2, 20);
  Activations activations = DecodeActivations(model, 16);
  std::vector<float> a(vocab), b(vocab);
  const DecodeSequence prompt{0, std::span<const int32_t>(tokens).first(8)};
  Decode(model, {&prompt, 1}, cache, activations, Tensor(a.data(), {1, vocab}));
  cache.CopySlot(0, 1);
  const DecodeSequence first{0, std::span<const int32_t>(tokens).last(1)}, second{1, first.tokens};
  Decode(model, {&first, 1}, cache, activations, Tensor(a.data(), {1, vocab}));
  Decode(model, {&second, 1}, cache, activations, Tensor(b.data(), {1, vocab}));
  EXPECT_EQ(a, b);
}

TEST(DecodeErrors, NameTheTokenAndTheRoom) {
  const Model model = MakeModel({"none", false, false}, DType::kF32);
  const int64_t vocab = model.config().vocab_size;
  KvCache cache(model, 1, 4);
  Activations activations = DecodeActivations(model, 8);
  std::vector<float> logits(vocab);
  const Tensor out(logits.data(), {1, vocab});
  auto message = [&](std::vector<int32_t> tokens) {
    const DecodeSequence sequence{0, tokens};
    try {
      Decode(model, {&sequence, 1}, cache, activations, out);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message({1, 101}).find("token 101 at position 1: expected 0 to 100"),
            std::string::npos);
  EXPECT_NE(message({1, 2, 3, 4, 5}).find("at most 4 together"), std::string::npos);
  EXPECT_EQ(cache.length(0), 0);
}

}  // namespace
}  // namespace denseformer
