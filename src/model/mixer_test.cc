// Every mixer with every set of streams on several topologies: values against the formulas in
// double, gradients against differences, and all the ways to run a model against each other.
#include "model/mixer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <ostream>
#include <utility>

#include "base/testing.h"
#include "model/decode.h"
#include "model/testing.h"

namespace denseformer {
namespace {

struct Variant {
  const char *mixer, *streams, *norm;
};
void PrintTo(const Variant& v, std::ostream* out) {
  *out << v.mixer << " " << v.streams << " " << v.norm;
}

constexpr Variant kVariants[] = {
    {"static", "rv", "none"},     {"static", "rqkv", "none"},     {"dynamic", "r", "none"},
    {"dynamic", "rv", "none"},    {"dynamic", "rqkv", "none"},    {"dynamic", "r", "prepost"},
    {"dynamic", "rv", "prepost"}, {"dynamic", "rqkv", "prepost"}, {"attention", "r", "none"},
    {"attention", "rv", "none"},  {"attention", "rqkv", "none"},  {"attnres", "r", "none"},
    {"attnres", "rv", "none"},    {"attnres", "rqkv", "none"},
};
constexpr const char* kTopologies[] = {
    "1x1", "2x3", "last:2", "final", "grouped:1x2", "mask:11/000/0111/00000/101001/1111111"};

ModelConfig Config(const Variant& v, const std::string& dwa) {
  ModelConfig config = SmallConfig(dwa, /*gains=*/true, /*bias=*/true);
  config.mixer = v.mixer;
  config.streams = v.streams;
  config.mixer_norm = v.norm;
  return config;
}

// rms(x) as the definition has it.
std::vector<double> Rms(const std::vector<double>& x) {
  double squares = 0;
  for (double value : x) squares += value * value;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + 1e-6);
  std::vector<double> out = x;
  for (double& value : out) value *= scale;
  return out;
}

double Gelu(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }

// One token's rows at every depth.
using Row = std::vector<double>;

// Y of stream c of the module at depth i, for one token, by the formulas of mixer.h.
Row Expected(const Model& model, int i, int c, const std::vector<Row>& x,
             const std::vector<Row>& y) {
  const MixerSpec& spec = model.mixer();
  const std::vector<int>& sources = model.pattern().sources(i);
  const size_t n = sources.size(), D = x[0].size();
  const MixerTensors& t = model.tensors().mixers[i];
  std::vector<double> a(n, 0);
  std::vector<Row> read;
  for (int j : sources) {
    Row row = x[j];
    if (spec.form->increments && j > 0) {
      for (size_t e = 0; e < D; ++e) row[e] -= y[j - 1][e];
    }
    read.push_back(row);
  }
  if (spec.form->increments) {
    double sum = 0;
    for (size_t k = 0; k < n; ++k) {
      const Row normalized = Rms(read[k]);
      double score = 0;
      for (size_t e = 0; e < D; ++e) score += t.query.f32()[c * D + e] * normalized[e];
      sum += a[k] = std::exp(score);
    }
    const double gate = t.gate.empty() ? 1 : t.gate.f32()[c];
    for (double& weight : a) weight *= gate / sum;
  } else {
    const float* b = model.tensors().alphas[i].f32();
    for (size_t k = 0; k < n; ++k) a[k] = b[c * n + k];
    if (spec.kind() == MixerKind::kDynamic) {
      const Row normalized = Rms(x[i]);
      const size_t h = static_cast<size_t>(t.w1.rows());
      std::vector<double> hidden(h, 0);
      for (size_t u = 0; u < h; ++u) {
        for (size_t e = 0; e < D; ++e) hidden[u] += t.w1.f32()[u * D + e] * normalized[e];
      }
      for (size_t k = 0; k < n; ++k) {
        for (size_t u = 0; u < h; ++u) a[k] += t.w2.f32()[(c * n + k) * h + u] * Gelu(hidden[u]);
      }
    }
  }
  Row out(D, 0);
  for (size_t k = 0; k < n; ++k) {
    const Row source = spec.prepost ? Rms(read[k]) : read[k];
    for (size_t e = 0; e < D; ++e) out[e] += a[k] * source[e];
  }
  if (spec.prepost) {
    out = Rms(out);
    for (size_t e = 0; e < D; ++e) out[e] *= t.post.f32()[c * D + e];
  }
  if (spec.prepost || spec.kind() == MixerKind::kAttention) {
    for (size_t e = 0; e < D; ++e) out[e] += x[i][e];
  }
  return out;
}

class MixerTest : public testing::TestWithParam<Variant> {};
INSTANTIATE_TEST_SUITE_P(All, MixerTest, testing::ValuesIn(kVariants));

TEST_P(MixerTest, StreamsFollowTheFormulas) {
  for (const char* dwa : kTopologies) {
    const Model model = RandomModel(Config(GetParam(), dwa));
    const RandomBatch batch(model.config(), 2, 5, 3);
    Activations a(model, 2, 5, ModelUse::kTraining);
    const size_t depths = static_cast<size_t>(model.config().n_layer) + 1, rows = 10, D = 24;
    std::vector<std::vector<Row>> x(rows, std::vector<Row>(depths, Row(D))), y = x;
    ForwardLoss(model, batch.batch(), a, {}, {}, [&](int i, const Tensor& xs, const Tensor& ys) {
      for (size_t t = 0; t < rows; ++t) {
        for (size_t e = 0; e < D; ++e) {
          x[t][i][e] = xs.f32()[t * D + e];
          y[t][i][e] = ys.f32()[t * D + e];
        }
      }
    });
    for (int i = 1; i <= model.config().n_layer; ++i) {
      if (!model.pattern().has_module(i)) continue;
      for (int c = 0; c < a.streams(i); ++c) {
        for (size_t t = 0; t < rows; ++t) {
          const Row expected = Expected(model, i, c, x[t], y[t]);
          double largest = 0;
          for (double value : expected) largest = std::max(largest, std::abs(value));
          for (size_t e = 0; e < D; ++e) {
            ASSERT_NEAR(a.y(i, c).f32()[t * D + e], expected[e], 1e-5 * largest)
                << dwa << ", depth " << i << ", stream " << c << ", token " << t;
          }
        }
      }
    }
  }
}

// The plain Transformer at the initial weights, bit for bit, but for attnres. (The width is one at
// which a GEMM gives a column the same bits whatever the number of columns; docs/mixers.md.)
TEST_P(MixerTest, StartsAsTheTransformer) {
  constexpr int kWidth = 48;
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    ModelConfig plain = Config(GetParam(), "none");
    plain.n_embd = kWidth;
    plain.mixer = "static";
    plain.streams = "r";
    plain.mixer_norm = "none";
    Model transformer(plain, compute, ModelUse::kInference);
    transformer.Initialize(3);
    const RandomBatch batch(plain, 2, 20, 5);
    const std::vector<float> expected = RunLogits(transformer, batch);
    for (const char* dwa : kTopologies) {
      ModelConfig config = Config(GetParam(), dwa);
      config.n_embd = kWidth;
      Model model(config, compute, ModelUse::kInference);
      model.Initialize(3);
      EXPECT_EQ(SameBits(RunLogits(model, batch), expected), model.mixer().form->identity)
          << dwa << " " << DTypeName(compute);
    }
  }
}

TEST_P(MixerTest, EveryWayToRunAPassAgrees) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    for (const char* dwa : kTopologies) {
      SCOPED_TRACE(std::string(dwa) + " " + DTypeName(compute));
      const Model model = RandomModel(Config(GetParam(), dwa), compute);
      const RandomBatch batch(model.config(), 3, 11, 4);
      const DropoutOptions dropout = {0.1f, 2, 9};
      Activations training(model, 3, 11, ModelUse::kTraining);
      Activations recompute(model, 3, 11, ModelUse::kTraining, /*recompute=*/true);
      Activations inference(model, 3, 20, ModelUse::kInference);
      EXPECT_EQ(ForwardLoss(model, batch.batch(), training),
                ForwardLoss(model, batch.batch(), inference));
      const auto gradients = [&](Activations& a, int threads) {
        const ThreadsGuard guard(threads);
        ForwardBackward(model, batch.batch(), dropout, 1, Gradients::kReplace, a);
        return std::vector<float>(model.gradients().begin(), model.gradients().end());
      };
      const std::vector<float> expected = gradients(training, 1);
      EXPECT_TRUE(SameBits(gradients(recompute, 1), expected));
      if (compute == DType::kF32) {
        EXPECT_TRUE(SameBits(gradients(training, 3), expected));
      }
      // Accumulated twice it is twice as large.
      ForwardBackward(model, batch.batch(), dropout, 1, Gradients::kAdd, training);
      for (const Parameter& p : model.table().all()) {
        std::vector<float> twice;
        for (float g : Slice(std::span<const float>(expected), p)) twice.push_back(2 * g);
        EXPECT_LT(RelativeError<float>(Slice(std::span<const float>(model.gradients()), p), twice),
                  1e-5)
            << p.name;
      }
    }
  }
}

// The largest difference between decoding on a KV cache, in chunks of several tokens and of one,
// and the full pass, relative to the largest logit.
double DecodingError(const Model& model) {
  const RandomBatch batch(model.config(), 1, 12, 6);
  const std::vector<float> full = RunLogits(model, batch);
  KvPool pool(model.config(), model.compute(), KvPagesFor(12));
  KvSequence cache(pool);
  Activations a = DecodeActivations(model, 12);
  const int64_t V = model.config().vocab_size;
  double worst = 0;
  int64_t done = 0;
  for (const int64_t count : {5, 1, 1, 3, 2}) {
    const DecodeSequence sequence = {
        &cache, std::span<const int32_t>(batch.tokens)
                    .subspan(static_cast<size_t>(done), static_cast<size_t>(count))};
    const int64_t last = count - 1;
    done += count;
    const std::span<const float> expected(full.data() + (done - 1) * V, static_cast<size_t>(V));
    Decode(model, {&sequence, 1}, {&last, 1}, a, [&](int64_t, const Tensor& row) {
      worst = std::max(worst, RelativeError<float>({row.f32(), static_cast<size_t>(V)}, expected));
    });
  }
  return worst;
}

TEST_P(MixerTest, DecodingEqualsTheFullPass) {
  for (const char* dwa : {"1x1", "2x3"}) {
    const Model model = RandomModel(Config(GetParam(), dwa));
    EXPECT_LT(DecodingError(model), 1e-4) << dwa;
    for (const auto& [format, tolerance] :
         {std::pair(WeightFormat::kF32, 1e-4), std::pair(WeightFormat::kBF16, 2e-2),
          std::pair(WeightFormat::kInt8, 5e-2)}) {
      EXPECT_LT(DecodingError(model.Frozen(format)), tolerance)
          << dwa << " " << WeightFormatName(format);
    }
  }
}

// bf16 stays close to fp32.
TEST_P(MixerTest, Bf16IsCloseToFp32) {
  const Model exact = RandomModel(Config(GetParam(), "1x1"), DType::kF32);
  const Model rounded = RandomModel(Config(GetParam(), "1x1"), DType::kBF16);
  const RandomBatch batch(exact.config(), 2, 15, 8);
  EXPECT_GT(Cosine(RunLogits(exact, batch), RunLogits(rounded, batch)), 0.999);
  EXPECT_GT(Cosine(RunPass(exact, batch).gradients, RunPass(rounded, batch).gradients), 0.99);
}

TEST(MixerSpecTest, WrongConfigurationsSayWhatWouldBeRight) {
  const auto error = [](const Variant& v, const char* dwa) {
    return ErrorOf([&] { Config(v, dwa).Validate(); });
  };
  EXPECT_EQ(error({"dinamic", "r", "none"}, "1x1"),
            "model.mixer: got 'dinamic', expected static, dynamic, attention or attnres (did you "
            "mean 'dynamic'?)");
  EXPECT_EQ(error({"static", "rk", "none"}, "1x1"),
            "model.streams: got 'rk', expected r, rv or rqkv (did you mean 'r'?)");
  EXPECT_EQ(error({"dynamic", "r", "post"}, "1x1"),
            "model.mixer_norm: got 'post', expected none or prepost");
  EXPECT_EQ(error({"attention", "r", "prepost"}, "1x1"),
            "model.mixer_norm: prepost goes with model.mixer = dynamic, got attention");
  EXPECT_EQ(error({"dynamic", "rv", "none"}, "none"),
            "model.mixer: got mixer dynamic and streams rv with model.dwa = none, which has no "
            "modules; choose a depth pattern such as --dwa 1x1");
}

TEST(MixerSpecTest, ParametersOfEveryMixer) {
  const auto find = [](const Variant& v, const std::string& name) {
    const ModelConfig config = Config(v, "1x1");
    const ParameterTable table(config, DepthPattern::Parse("1x1", config.n_layer));
    const Parameter* found = table.Find(name);
    return found == nullptr ? std::string("-") : found->shape.ToString();
  };
  EXPECT_EQ(find({"static", "rqkv", "none"}, "dwa_modules.alphas.1.weight"), "[4, 3]");
  EXPECT_EQ(find({"static", "rqkv", "none"}, "dwa_modules.alphas.5.weight"), "[1, 7]");
  EXPECT_EQ(find({"dynamic", "rv", "none"}, "dwa_modules.mixers.1.w1.weight"), "[6, 24]");
  EXPECT_EQ(find({"dynamic", "rv", "none"}, "dwa_modules.mixers.1.w2.weight"), "[6, 6]");
  EXPECT_EQ(find({"dynamic", "rv", "none"}, "dwa_modules.mixers.1.post.weight"), "-");
  EXPECT_EQ(find({"dynamic", "rv", "prepost"}, "dwa_modules.mixers.1.post.weight"), "[2, 24]");
  EXPECT_EQ(find({"attention", "r", "none"}, "dwa_modules.mixers.1.query"), "[1, 24]");
  EXPECT_EQ(find({"attention", "r", "none"}, "dwa_modules.mixers.1.gate"), "[1]");
  EXPECT_EQ(find({"attnres", "r", "none"}, "dwa_modules.mixers.1.gate"), "-");
  EXPECT_EQ(find({"dynamic", "rv", "none"}, "transformer.h.0.ln_v.weight"), "-");
  EXPECT_EQ(find({"dynamic", "rv", "none"}, "transformer.h.1.ln_v.weight"), "[24]");
  EXPECT_EQ(find({"dynamic", "rv", "none"}, "transformer.h.1.ln_k.weight"), "-");
  EXPECT_EQ(find({"dynamic", "rqkv", "none"}, "transformer.h.1.ln_k.bias"), "[24]");
}

}  // namespace
}  // namespace denseformer
