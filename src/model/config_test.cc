// Presets and the checks of a configuration.
#include "denseformer/config.h"

#include <gtest/gtest.h>

#include "base/testing.h"
#include "model/config_fields.h"

namespace denseformer {
namespace {

TEST(ModelConfigTest, PresetsAreValid) {
  const std::vector<std::string> names = ModelConfig::PresetNames();
  EXPECT_EQ(names, (std::vector<std::string>{"paper-48", "paper-64", "paper-72", "paper-84",
                                             "paper-90", "small", "tiny", "micro", "test"}));
  for (const std::string& name : names) {
    ModelConfig config = ModelConfig::Preset(name);
    config.Validate();
    EXPECT_EQ(config.dwa, "none");
    EXPECT_FALSE(config.gains || config.bias);
    config.dwa = "1x1";
    config.Validate();
  }
}

TEST(ModelConfigTest, PaperPresets) {
  for (int depth : {48, 64, 72, 84, 90}) {
    const ModelConfig config = ModelConfig::Preset("paper-" + std::to_string(depth));
    EXPECT_EQ(config.n_layer, depth);
    EXPECT_EQ(config.n_embd, 768);
    EXPECT_EQ(config.n_head, 12);
    EXPECT_EQ(config.head_size(), 64);
    EXPECT_EQ(config.vocab_size, 50304);
    EXPECT_EQ(config.seq_len, 256);
  }
  EXPECT_EQ(ModelConfig::Preset("small").n_layer, 48);
}

TEST(ModelConfigTest, UnknownPresetSuggestsTheNearest) {
  EXPECT_EQ(ErrorOf([] { ModelConfig::Preset("paper-46"); }),
            "preset: got 'paper-46', expected one of paper-48, paper-64, paper-72, paper-84, "
            "paper-90, small, tiny, micro, test (did you mean 'paper-48'?)");
}

TEST(ModelConfigTest, WrongFieldsAreNamed) {
  const auto error = [](auto&& change) {
    ModelConfig config = ModelConfig::Preset("test");
    change(config);
    return ErrorOf([&] { config.Validate(); });
  };
  EXPECT_EQ(error([](ModelConfig& c) { c.n_layer = 0; }),
            "model.n_layer: got 0, expected 1 to 4096");
  EXPECT_EQ(error([](ModelConfig& c) { c.n_layer = 4097; }),
            "model.n_layer: got 4097, expected 1 to 4096");
  EXPECT_EQ(error([](ModelConfig& c) { c.n_head = -1; }),
            "model.n_head: got -1, expected 1 to 1024");
  EXPECT_EQ(error([](ModelConfig& c) { c.n_embd = 0; }),
            "model.n_embd: got 0, expected 1 to 131072");
  EXPECT_EQ(error([](ModelConfig& c) { c.vocab_size = 0; }),
            "model.vocab_size: got 0, expected 1 to 16777216");
  EXPECT_EQ(error([](ModelConfig& c) { c.seq_len = 0; }),
            "model.seq_len: got 0, expected 1 to 1048576");
  EXPECT_EQ(error([](ModelConfig& c) { c.n_head = 3; }),
            "model.n_head: got 3, expected a divisor of n_embd = 32");
  EXPECT_EQ(
      error([](ModelConfig& c) { c.n_head = 32; }),
      "model.n_head: n_embd / n_head = 32 / 32 = 1 is odd; rotary embeddings rotate pairs, so "
      "it must be even");
  EXPECT_EQ(error([](ModelConfig& c) { c.dwa = "4x5"; }),
            "depth pattern '4x5': period P = 5 is larger than the depth 4, so there would be no "
            "module");
  EXPECT_EQ(error([](ModelConfig&) {}), "no error");
}

TEST(ModelConfigTest, VisitFieldsReachesEveryField) {
  // A field that the visitor misses would be lost by every file that is written through it.
  ModelConfig config{1, 2, 3, 4, 5, true, true, "final", "dynamic", "rv", "prepost"};
  ModelConfig copy;
  int count = 0;
  VisitFields(config, [&](const char* name, const auto& value, const char* help) {
    ++count;
    EXPECT_STRNE(help, "");
    VisitFields(copy, [&](const std::string& other, auto& target, const char*) {
      if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::decay_t<decltype(target)>>) {
        if (other == name) target = value;
      }
    });
  });
  EXPECT_EQ(count, 11);
  EXPECT_EQ(copy, config);
}

}  // namespace
}  // namespace denseformer
