// Logits on a KV cache equal those of the full forward pass, for every variant, at every position.
#include "model/decode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/team.h"
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

// The logits after the last new token of each sequence, [sequences, V].
std::vector<float> LastLogits(const Model& model, std::span<const DecodeSequence> sequences,
                              Activations& activations) {
  std::vector<int64_t> rows;
  int64_t end = 0;
  for (const DecodeSequence& sequence : sequences) {
    end += static_cast<int64_t>(sequence.tokens.size());
    rows.push_back(end - 1);
  }
  std::vector<float> all;
  Decode(model, sequences, rows, activations, [&](int64_t, const Tensor& logits) {
    all.insert(all.end(), logits.f32(), logits.f32() + logits.count());
  });
  return all;
}

class DecodeVariants : public ::testing::TestWithParam<std::tuple<Variant, DType>> {};

TEST_P(DecodeVariants, EveryPositionEqualsTheFullPass) {
  const auto& [variant, compute] = GetParam();
  const double tolerance = compute == DType::kF32 ? 1e-5 : 3e-2;
  const Model model = MakeModel(variant, compute);
  const int64_t vocab = model.config().vocab_size;
  const std::vector<int32_t> tokens = RandomTokens(model, model.config().seq_len, 11);
  const std::vector<float> full = FullLogits(model, tokens);
  KvPool pool(model.config(), compute, 2);
  KvSequence cache(pool);
  Activations activations = DecodeActivations(model, 40);
  // A prompt of 5, then one by one, then a chunk of 4 and one by one again.
  for (size_t at = 0; at < tokens.size();) {
    const size_t count = at == 0 ? 5 : at == 12 ? 4 : 1;
    const DecodeSequence sequence{&cache, std::span<const int32_t>(tokens).subspan(at, count)};
    const std::vector<float> logits = LastLogits(model, {&sequence, 1}, activations);
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
  KvPool pool(model.config(), compute, 8);
  std::vector<KvSequence> caches;
  for (int s = 0; s < 4; ++s) caches.emplace_back(pool);
  Activations activations = DecodeActivations(model, 64);
  for (int step = 0; step < 4; ++step) {
    std::vector<DecodeSequence> sequences;
    for (int s = 3; s >= 0; --s) {  // the order of the sequences does not matter
      const std::span<const int32_t> text(texts[s]);
      sequences.push_back({&caches[s], step == 0 ? text.first(lengths[s])
                                                 : text.subspan(lengths[s] + step - 1, 1)});
    }
    const std::vector<float> logits = LastLogits(model, sequences, activations);
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

TEST(KvCacheTest, ASharedPrefixGoesOnByItself) {
  const Model model = MakeModel({"1x1", false, false}, DType::kF32);
  const std::vector<int32_t> tokens = RandomTokens(model, 40, 5);
  const std::span<const int32_t> text(tokens);
  for (int64_t common : {8, 32, 39}) {
    KvPool pool(model.config(), DType::kF32, 4);
    KvSequence first(pool), second(pool);
    Activations activations = DecodeActivations(model, 64);
    const DecodeSequence all{&first, text};
    const std::vector<float> expected = LastLogits(model, {&all, 1}, activations);
    second.Share(first, common);
    EXPECT_EQ(pool.free_pages(), common == 32 ? 2 : 1);  // a full page is shared, the rest copied
    if (common % kKvPageTokens != 0) {  // what the first computes next does not reach the second
      first.SetLength(common);
      const std::vector<int32_t> other = RandomTokens(model, 1, 6);
      const DecodeSequence divergent{&first, other};
      LastLogits(model, {&divergent, 1}, activations);
    }
    const DecodeSequence rest{&second, text.subspan(static_cast<size_t>(common))};
    ExpectNear(LastLogits(model, {&rest, 1}, activations), expected, 1e-5, std::to_string(common));
    second.SetLength(0);
    first.SetLength(0);
    EXPECT_EQ(pool.free_pages(), 4);
  }
}

TEST(DecodeTest, LogitsOfChosenRows) {
  const Model model = MakeModel({"2x1", false, false}, DType::kF32);
  const int64_t vocab = model.config().vocab_size;
  const std::vector<int32_t> a = RandomTokens(model, 9, 5), b = RandomTokens(model, 12, 6);
  KvPool pool(model.config(), DType::kF32, 2);
  KvSequence first(pool), second(pool);
  Activations activations = DecodeActivations(model, 32);
  const DecodeSequence sequences[] = {{&first, a}, {&second, b}};
  const std::vector<int64_t> rows = {2, 3, 8, 9, 20};
  const std::vector<float> full_a = FullLogits(model, a), full_b = FullLogits(model, b);
  int64_t seen = 0;
  Decode(model, sequences, rows, activations, [&](int64_t begin, const Tensor& logits) {
    EXPECT_EQ(begin, seen);
    for (int64_t r = 0; r < logits.rows(); ++r, ++seen) {
      const int64_t row = rows[static_cast<size_t>(seen)];
      const std::span<const float> expected =
          row < 9 ? std::span<const float>(full_a).subspan(row * vocab, vocab)
                  : std::span<const float>(full_b).subspan((row - 9) * vocab, vocab);
      ExpectNear({logits.f32() + r * vocab, static_cast<size_t>(vocab)}, expected, 1e-5,
                 std::to_string(row));
    }
  });
  EXPECT_EQ(seen, 5);
}

TEST(DecodeErrors, NameTheTokenAndTheRoom) {
  const Model model = MakeModel({"none", false, false}, DType::kF32);
  KvPool pool(model.config(), DType::kF32, 4);
  KvSequence cache(pool);
  Activations activations = DecodeActivations(model, 8);
  auto message = [&](std::vector<int32_t> tokens) {
    const DecodeSequence sequence{&cache, tokens};
    try {
      LastLogits(model, {&sequence, 1}, activations);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message({1, 101}).find("token 101 at position 1: expected 0 to 100"),
            std::string::npos);
  EXPECT_NE(message(std::vector<int32_t>(41, 1)).find("at most 40 together"), std::string::npos);
  EXPECT_EQ(cache.length(), 0);
  EXPECT_EQ(pool.free_pages(), 4);
}

// The passes of a step of a frozen model meet in one parallel region: qkv, attention, projection
// and two of the MLP per block, and the head.
TEST(Decode, AStepOfAFrozenModelIsOneParallelRegion) {
  ModelConfig config;
  config.n_layer = 3;
  config.n_head = 4;
  config.n_embd = 256;
  config.vocab_size = 101;
  config.seq_len = 8;
  Model model(config, WeightFormat::kBF16);
  model.Fill(
      [](const Parameter& p, int64_t, int64_t count, float* values, float*) {
        std::fill_n(values, count * p.shape[p.shape.rank() - 1], 0.01f);
        return false;
      },
      [](const Parameter&) {});
  Activations activations = DecodeActivations(model, 1);
  KvPool pool(config, model.compute(), 1);
  KvSequence cache(pool);
  const int32_t token = 5;
  const DecodeSequence sequence{&cache, {&token, 1}};
  const int threads = NumThreads();
  SetNumThreads(2);
  const ParallelCounts before = CountParallel();
  EXPECT_EQ(LastLogits(model, {&sequence, 1}, activations).size(), 101u);
  const ParallelCounts after = CountParallel();
  SetNumThreads(threads);
  EXPECT_EQ(after.regions - before.regions, 1u);
  EXPECT_LE(after.team_calls - before.team_calls, 3u * 5 + 1);
}

}  // namespace
}  // namespace denseformer
