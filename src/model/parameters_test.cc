// The parameter table: counts of the paper, names, decay, views, initial weights.
#include "model/parameters.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/parallel.h"

namespace denseformer {
namespace {

ParameterTable TableOf(ModelConfig config) {
  return ParameterTable(config, DepthPattern::Parse(config.dwa, config.n_layer));
}

ModelConfig TestConfig(const std::string& dwa, bool gains = false, bool bias = false) {
  ModelConfig config = ModelConfig::Preset("test");
  config.dwa = dwa;
  config.gains = gains;
  config.bias = bias;
  return config;
}

TEST(ParameterTableTest, CountsOfThePaper) {
  // Counting must not take the memory of the model: these tables hold no weights.
  const std::tuple<const char*, const char*, int64_t> cases[] = {
      {"paper-48", "none", 378446592},       {"paper-64", "none", 491717376},
      {"paper-72", "none", 548352768},       {"paper-84", "none", 633305856},
      {"paper-90", "none", 675782400},       {"paper-48", "1x1", 378447816},
      {"paper-72", "1x1", 548355468},        {"paper-48", "4x5", 378446592 + 62},
      {"paper-48", "final", 378446592 + 49},
  };
  for (const auto& [preset, dwa, count] : cases) {
    ModelConfig config = ModelConfig::Preset(preset);
    config.dwa = dwa;
    EXPECT_EQ(TableOf(config).count(), count) << preset << " " << dwa;
  }
}

TEST(ParameterTableTest, CountsByGroup) {
  const int64_t D = 32, V = 512, d = 4;
  const ParameterTable table = TableOf(TestConfig("1x1", /*gains=*/true, /*bias=*/true));
  EXPECT_EQ(table.count(ParameterGroup::kEmbedding), V * D);
  EXPECT_EQ(table.count(ParameterGroup::kAttention), d * 4 * D * D);
  EXPECT_EQ(table.count(ParameterGroup::kMlp), d * 8 * D * D);
  EXPECT_EQ(table.count(ParameterGroup::kNorm), (2 * d + 1) * D);
  EXPECT_EQ(table.count(ParameterGroup::kDwa), 2 + 3 + 4 + 5);
  EXPECT_EQ(table.count(ParameterGroup::kGain), 2 * d);
  // LayerNorms, then 3D + D + 4D + D of the linear layers.
  EXPECT_EQ(table.count(ParameterGroup::kBias), (2 * d + 1) * D + d * 9 * D);
  int64_t sum = 0;
  for (int group = 0; group < kParameterGroups; ++group) {
    sum += table.count(static_cast<ParameterGroup>(group));
  }
  EXPECT_EQ(table.count(), sum);
}

TEST(ParameterTableTest, NamesAndShapesOfTheAuthorsCheckpoints) {
  const ParameterTable table = TableOf(TestConfig("2x2", /*gains=*/true));
  const std::tuple<const char*, Shape, int> expected[] = {
      {"transformer.wte.weight", {512, 32}, 0},
      {"transformer.h.0.ln_1.weight", {32}, 1},
      {"transformer.h.0.attn.c_attn.weight", {96, 32}, 1},
      {"transformer.h.0.attn.c_proj.weight", {32, 32}, 1},
      {"transformer.h.0.ln_2.weight", {32}, 1},
      {"transformer.h.0.mlp.c_fc.weight", {128, 32}, 1},
      {"transformer.h.0.mlp.c_proj.weight", {32, 128}, 1},
      {"transformer.h.0.gain_attn", {1}, 1},
      {"transformer.h.3.gain_mlp", {1}, 4},
      {"transformer.ln_f.weight", {32}, 0},
      {"dwa_modules.alphas.1.weight", {1, 2}, 2},
      {"dwa_modules.alphas.3.weight", {1, 3}, 4},
  };
  for (const auto& [name, shape, block] : expected) {
    const Parameter* parameter = table.Find(name);
    ASSERT_NE(parameter, nullptr) << name;
    EXPECT_EQ(parameter->shape, shape) << name;
    EXPECT_EQ(parameter->block, block) << name;
  }
  // 1 embedding, 8 per block, 1 final norm, 2 modules; nothing with a bias.
  EXPECT_EQ(table.all().size(), 1u + 4 * 8 + 1 + 2);
  EXPECT_EQ(table.Find("dwa_modules.alphas.0.weight"), nullptr);
  EXPECT_EQ(table.Find("transformer.h.4.ln_1.weight"), nullptr);
  EXPECT_EQ(table.Find("transformer.ln_f.bias"), nullptr);
  EXPECT_EQ(TableOf(TestConfig("none")).Find("transformer.h.0.gain_attn"), nullptr);
  const ParameterTable with_bias = TableOf(TestConfig("none", false, /*bias=*/true));
  EXPECT_EQ(with_bias.Find("transformer.h.2.attn.c_attn.bias")->shape, Shape({96}));
  EXPECT_EQ(with_bias.Find("transformer.h.2.mlp.c_proj.bias")->shape, Shape({32}));
  EXPECT_EQ(with_bias.Find("transformer.ln_f.bias")->shape, Shape({32}));
}

TEST(ParameterTableTest, DecayFollowsTheRecipe) {
  const ParameterTable table = TableOf(TestConfig("1x1", /*gains=*/true, /*bias=*/true));
  for (const Parameter& parameter : table.all()) {
    const bool matrix = parameter.shape.rank() == 2 && parameter.name != "transformer.wte.weight";
    const bool gain = parameter.name.find("gain_") != std::string::npos;
    EXPECT_EQ(parameter.decay, matrix || gain) << parameter.name;
  }
}

TEST(ParameterTableTest, TensorsLieApartAndAligned) {
  const ParameterTable table = TableOf(TestConfig("1x1", /*gains=*/true, /*bias=*/true));
  std::set<std::string> names;
  int64_t end = 0;
  for (const Parameter& parameter : table.all()) {
    EXPECT_TRUE(names.insert(parameter.name).second) << parameter.name << " twice";
    EXPECT_GE(parameter.offset, end) << parameter.name;
    EXPECT_EQ(parameter.offset % 16, 0) << parameter.name;
    end = parameter.offset + parameter.count();
  }
  EXPECT_LE(end, table.buffer_size());
}

TEST(ParameterTableTest, BindGivesTheViewsByName) {
  const ParameterTable table = TableOf(TestConfig("2x2", /*gains=*/true, /*bias=*/true));
  std::vector<float> buffer(table.buffer_size());
  const ModelTensors m = table.Bind(buffer.data());
  const auto expect = [&](const Tensor& tensor, const std::string& name) {
    const Parameter* parameter = table.Find(name);
    ASSERT_NE(parameter, nullptr) << name;
    EXPECT_EQ(tensor.raw(), buffer.data() + parameter->offset) << name;
    EXPECT_EQ(tensor.shape(), parameter->shape) << name;
  };
  expect(m.wte, "transformer.wte.weight");
  expect(m.ln_f_weight, "transformer.ln_f.weight");
  expect(m.ln_f_bias, "transformer.ln_f.bias");
  for (int i = 0; i < 4; ++i) {
    const BlockTensors& b = m.blocks[i];
    const std::string prefix = "transformer.h." + std::to_string(i) + ".";
    expect(b.ln_1_weight, prefix + "ln_1.weight");
    expect(b.ln_1_bias, prefix + "ln_1.bias");
    expect(b.qkv_weight, prefix + "attn.c_attn.weight");
    expect(b.qkv_bias, prefix + "attn.c_attn.bias");
    expect(b.proj_weight, prefix + "attn.c_proj.weight");
    expect(b.proj_bias, prefix + "attn.c_proj.bias");
    expect(b.ln_2_weight, prefix + "ln_2.weight");
    expect(b.ln_2_bias, prefix + "ln_2.bias");
    expect(b.fc_weight, prefix + "mlp.c_fc.weight");
    expect(b.fc_bias, prefix + "mlp.c_fc.bias");
    expect(b.mlp_proj_weight, prefix + "mlp.c_proj.weight");
    expect(b.mlp_proj_bias, prefix + "mlp.c_proj.bias");
    expect(b.gain_attn, prefix + "gain_attn");
    expect(b.gain_mlp, prefix + "gain_mlp");
  }
  EXPECT_TRUE(m.alphas[1].empty());
  expect(m.alphas[2], "dwa_modules.alphas.1.weight");
  EXPECT_TRUE(m.alphas[3].empty());
  expect(m.alphas[4], "dwa_modules.alphas.3.weight");
}

std::vector<float> Initialized(const ParameterTable& table, uint64_t seed) {
  std::vector<float> buffer(table.buffer_size());
  table.Initialize(seed, buffer.data());
  return buffer;
}

TEST(ParameterTableTest, InitialWeightsHaveTheRightDistribution) {
  const ParameterTable table = TableOf(TestConfig("1x1", /*gains=*/true, /*bias=*/true));
  const std::vector<float> buffer = Initialized(table, 7);
  for (const Parameter& parameter : table.all()) {
    const float* data = buffer.data() + parameter.offset;
    const int64_t n = parameter.count();
    const bool writes_to_stream = parameter.name.ends_with("c_proj.weight");
    if (parameter.group == ParameterGroup::kDwa) {
      for (int64_t i = 0; i < n; ++i) EXPECT_EQ(data[i], i == n - 1 ? 1.0f : 0.0f);
    } else if (parameter.shape.rank() == 1) {
      const float expected = parameter.group == ParameterGroup::kBias ? 0.0f : 1.0f;
      for (int64_t i = 0; i < n; ++i) EXPECT_EQ(data[i], expected) << parameter.name;
    } else {
      const double deviation = writes_to_stream ? 0.02 / std::sqrt(2.0 * 4) : 0.02;
      double sum = 0, squares = 0, fourths = 0;
      for (int64_t i = 0; i < n; ++i) {
        const double z = data[i] / deviation;
        sum += z;
        squares += z * z;
        fourths += z * z * z * z;
      }
      // Five standard errors of mean, variance and fourth moment of a normal sample.
      const double root = std::sqrt(static_cast<double>(n));
      EXPECT_NEAR(sum / n, 0, 5 / root) << parameter.name;
      EXPECT_NEAR(squares / n, 1, 5 * std::sqrt(2.0) / root) << parameter.name;
      EXPECT_NEAR(fourths / n, 3, 5 * std::sqrt(96.0) / root) << parameter.name;
    }
  }
}

TEST(ParameterTableTest, EveryPatternStartsFromTheSameTransformer) {
  const ParameterTable plain = TableOf(TestConfig("none"));
  const std::vector<float> expected = Initialized(plain, 3);
  for (const char* dwa :
       {"1x1", "4x2", "grouped:1x2", "last:2", "final", "mask:11/000/1001/00001"}) {
    for (bool gains : {false, true}) {
      const ParameterTable table = TableOf(TestConfig(dwa, gains, /*bias=*/gains));
      const std::vector<float> buffer = Initialized(table, 3);
      for (const Parameter& parameter : plain.all()) {
        const Parameter* other = table.Find(parameter.name);
        ASSERT_NE(other, nullptr);
        for (int64_t i = 0; i < parameter.count(); ++i) {
          ASSERT_EQ(buffer[other->offset + i], expected[parameter.offset + i])
              << dwa << " " << parameter.name;
        }
      }
    }
  }
}

TEST(ParameterTableTest, SeedsDifferAndThreadsDoNot) {
  const ParameterTable table = TableOf(TestConfig("1x1"));
  const int threads = NumThreads();
  SetNumThreads(1);
  const std::vector<float> one = Initialized(table, 3);
  SetNumThreads(3);
  const std::vector<float> three = Initialized(table, 3);
  SetNumThreads(threads);
  EXPECT_EQ(one, three);
  EXPECT_NE(one, Initialized(table, 4));
  // Two matrices of one shape must not hold the same numbers.
  const Parameter* a = table.Find("transformer.h.0.mlp.c_fc.weight");
  const Parameter* b = table.Find("transformer.h.1.mlp.c_fc.weight");
  EXPECT_NE(one[a->offset], one[b->offset]);
}

}  // namespace
}  // namespace denseformer
