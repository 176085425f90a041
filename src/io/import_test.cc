// Models of a real PyTorch come in with equal values and equal logits, and go out again.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/testing.h"
#include "io/import_export.h"
#include "io/python_for_tests.h"
#include "io/run_directory.h"
#include "io/safetensors.h"
#include "io/weights.h"
#include "model/forward.h"

namespace denseformer {
namespace {

namespace fs = std::filesystem;

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void WriteText(const std::string& path, const std::string& text) {
  OutputFile file(path);
  file.Write(text);
  file.Close();
}

std::vector<float> Logits(const Model& model, const std::vector<int32_t>& tokens,
                          int64_t sequences) {
  const int64_t length = static_cast<int64_t>(tokens.size()) / sequences;
  Activations activations(model, sequences, length, ModelUse::kInference);
  std::vector<float> logits(tokens.size() * model.config().vocab_size);
  ForwardLogits(model, {tokens, {}, sequences, length}, activations,
                Tensor(logits.data(), {static_cast<int64_t>(tokens.size()),
                                       static_cast<int64_t>(model.config().vocab_size)}));
  return logits;
}

void ExpectNear(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  double largest = 0, error = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(std::isfinite(got[i]));
    largest = std::max<double>(largest, std::abs(expected[i]));
    error = std::max<double>(error, std::abs(got[i] - expected[i]));
  }
  EXPECT_LE(error, 1e-5 * largest);
}

bool SameWeights(const Model& a, const Model& b) {
  return std::ranges::equal(a.weights(), b.weights());
}

// Checkpoints of the small reference model (tests/python/reference_gpt.py).
class ReferenceTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!HavePytorch()) return;
    directory_ = new TemporaryDirectory;
    ASSERT_TRUE(RunPython("reference_gpt.py", directory_->path()));
  }
  static void TearDownTestSuite() { delete std::exchange(directory_, nullptr); }
  void SetUp() override {
    if (directory_ == nullptr) GTEST_SKIP() << Python() << " has no torch";
  }

  static std::string Path(const std::string& name) { return *directory_ / name; }
  static nlohmann::json Expected(const std::string& name) {
    return nlohmann::json::parse(ReadFile(Path(name) + "/expected.json"));
  }
  static std::vector<float> LogitsOf(const Model& model, const std::string& name) {
    return Logits(model, Expected(name)["tokens"].get<std::vector<int32_t>>(), 2);
  }
  static ImportedModel Import(const std::string& name, const std::string& dwa = "") {
    return ImportModel({Path(name), "", dwa, {}});
  }

  static TemporaryDirectory* directory_;
};
TemporaryDirectory* ReferenceTest::directory_ = nullptr;

struct Case {
  const char* name;
  const char* dwa;
  bool gains;
  // Own name and foreign name of one parameter of a late block.
  const char *own, *foreign;
};

constexpr Case kCases[] = {
    {"base", "none", false, "transformer.h.2.mlp.c_fc.weight", "transformer.h.2.mlp.c_fc.weight"},
    {"gains", "none", true, "transformer.h.1.gain_mlp", "transformer.h.1.gain_mlp"},
    {"dense-1x1", "grouped:1x1", false, "dwa_modules.alphas.2.weight", "weights.2.weight"},
    {"dense-2x3", "grouped:2x3", false, "transformer.h.4.attn.c_attn.weight",
     "transformer.h.1.1.attn.c_attn.weight"},
    {"last", "final", false, "transformer.h.3.ln_2.weight", "transformer.h.3.0.ln_2.weight"},
    {"last-2", "final:2", false, "transformer.h.4.ln_2.weight", "transformer.h.2.0.ln_2.weight"},
    {"package-2x2", "2x2", false, "dwa_modules.alphas.3.weight", "dwa_modules.alphas.3.weight"},
};

TEST_F(ReferenceTest, EqualValuesAndLogits) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const ImportedModel imported = Import(c.name);
    EXPECT_EQ(imported.model.config().dwa, c.dwa);
    EXPECT_EQ(imported.model.config().gains, c.gains);
    EXPECT_EQ(imported.model.config().seq_len, 12);
    EXPECT_TRUE(imported.identity.empty());
    const auto expected = Expected(c.name);
    const Parameter* parameter = imported.model.table().Find(c.own);
    ASSERT_NE(parameter, nullptr);
    const auto values = expected["parameters"][c.foreign].get<std::vector<float>>();
    EXPECT_TRUE(std::equal(values.begin(), values.end(),
                           imported.model.weights().begin() + parameter->offset));
    ExpectNear(LogitsOf(imported.model, c.name), expected["logits"].get<std::vector<float>>());
  }
}

TEST_F(ReferenceTest, PatternsAreFoundWithoutTheSummary) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const TemporaryDirectory scratch;
    fs::copy_file(Path(c.name) + "/ckpt.pt", scratch / "weights.pt");
    EXPECT_TRUE(Contains(ErrorOf([&] {
                           ImportModel({scratch / "weights.pt", "", "", {}});
                         }),
                         "import: n_head is not in the file"));
    const ImportedModel imported =
        ImportModel({scratch / "weights.pt", "", "", {"n_head=2", "model.seq_len=12"}});
    EXPECT_EQ(DepthPattern::Parse(imported.model.config().dwa, imported.model.config().n_layer),
              DepthPattern::Parse(c.dwa, imported.model.config().n_layer));
    EXPECT_TRUE(SameWeights(imported.model, Import(c.name).model));
  }
}

TEST_F(ReferenceTest, ATransformerBecomesADenseFormer) {
  const ImportedModel plain = Import("base");
  const ImportedModel dense = Import("base", "1x1");
  EXPECT_EQ(dense.model.config().dwa, "1x1");
  EXPECT_EQ(dense.identity.size(), 3u);
  EXPECT_EQ(LogitsOf(dense.model, "base"), LogitsOf(plain.model, "base"));
  // A file that has averages keeps them, and they must fit.
  const std::string message = ErrorOf([&] { Import("dense-1x1", "grouped:2x1"); });
  EXPECT_TRUE(Contains(message, "'weights.1.weight' is [1, 3], expected [1, 2]")) << message;
}

TEST_F(ReferenceTest, ExportsComeBack) {
  for (const Case& c : kCases) {
    for (const ExportFormat format : {ExportFormat::kNative, ExportFormat::kAuthors}) {
      SCOPED_TRACE(c.name);
      const TemporaryDirectory scratch;
      const Model model = Import(c.name).model;
      const std::string out = scratch / "out";
      auto write = [&] { ExportModel(model, out, format, StoredType::kF32, "{}"); };
      if (format == ExportFormat::kAuthors && std::string(c.name) == "package-2x2") {
        EXPECT_TRUE(Contains(ErrorOf(write), "no model with dwa 2x2"));
        continue;
      }
      write();
      const ImportedModel again = ImportModel({out, "", "", {}});
      EXPECT_TRUE(SameWeights(again.model, model));
      EXPECT_EQ(again.model.config(), model.config());
      EXPECT_EQ(again.tokenizer, out + "/tokenizer.json");
      if (format == ExportFormat::kNative) {
        EXPECT_TRUE(SameWeights(LoadModel(out, DType::kF32, ModelUse::kInference), model));
        for (const VerifyResult& result : VerifyRun(out)) EXPECT_EQ(result.problem, "");
      } else {
        const SafetensorsFile file(out + "/model.safetensors");
        EXPECT_NE(file.Find(c.foreign), nullptr);
        EXPECT_NE(file.Find("lm_head.weight"), nullptr);
      }
    }
  }
}

TEST_F(ReferenceTest, WrongSummariesAreRefused) {
  const TemporaryDirectory scratch;
  fs::copy_file(Path("dense-2x3") + "/ckpt.pt", scratch / "ckpt.pt");
  auto with = [&](const std::string& key, const nlohmann::json& value) {
    auto summary = nlohmann::json::parse(ReadFile(Path("dense-2x3") + "/summary.json"));
    summary["args"][key] = value;
    WriteText(scratch / "summary.json", summary.dump());
    return ErrorOf([&] { ImportModel({scratch.path(), "", "", {}}); });
  };
  EXPECT_EQ(with("n_layer", 6), "no error");
  EXPECT_TRUE(Contains(with("n_layer", 9), "'transformer.h.2.0.ln_1.weight' [16] is missing"));
  EXPECT_TRUE(Contains(with("n_layer", 3), "is no parameter of this model"));
  EXPECT_TRUE(
      Contains(with("n_embd", 32), "'transformer.wte.weight' is [48, 16], expected [48, 32]"));
  EXPECT_TRUE(
      Contains(with("dilation_factor", 1), "'weights.1.weight' is [1, 2], expected [1, 3]"));
  EXPECT_TRUE(Contains(with("model", "llama"), "model 'llama', expected base"));
  EXPECT_TRUE(Contains(with("model", "base"), "'weights.0.weight' [1, 1] is no parameter"));
  EXPECT_TRUE(Contains(with("n_head", "two"), "import: n_head: got 'two'"));
  // Models that this program does not compute.
  EXPECT_EQ(with("positional_encoder", "rotary"), "no error");
  EXPECT_TRUE(Contains(with("positional_encoder", "none"),
                       "positional_encoder is \"none\", expected \"rotary\""));
  EXPECT_EQ(with("attention_window_length", nullptr), "no error");
  EXPECT_TRUE(Contains(with("attention_window_length", 64), "attention_window_length is 64"));
}

// Safetensors directories, without PyTorch.
class DirectoryTest : public ::testing::Test {
 protected:
  DirectoryTest() : model_(Config(), DType::kF32, ModelUse::kInference) { model_.Initialize(1); }

  static ModelConfig Config() {
    ModelConfig config = ModelConfig::Preset("test");
    config.n_embd = 8;
    config.vocab_size = 16;
    config.bias = true;
    config.dwa = "last:2";
    return config;
  }
  // Writes some of the tensors, under changed names.
  template <class F>
  void Write(const std::string& name, F rename) {
    Write(name, rename, model_);
  }
  template <class F>
  void Write(const std::string& name, F rename, const Model& model) {
    std::vector<TensorToWrite> tensors;
    for (TensorToWrite tensor : TensorsOf(model.table(), {"", model.weights().data()})) {
      tensor.name = rename(tensor.name);
      if (!tensor.name.empty()) tensors.push_back(tensor);
    }
    OutputFile file(scratch_ / name);
    WriteSafetensors(tensors, {}, [&](const void* data, size_t size) { file.Write(data, size); });
    file.Close();
  }
  void WriteConfig(const std::string& more = "") {
    WriteText(scratch_ / "config.json",
              "{\"num_attention_heads\": 2, \"max_position_embeddings\": 32" + more + "}");
  }
  std::string Error() {
    return ErrorOf([&] { ImportModel({scratch_.path(), "", "", {}}); });
  }

  TemporaryDirectory scratch_;
  Model model_;
};

TEST_F(DirectoryTest, WrappersShardsAndKeysOfOthers) {
  WriteConfig();
  Write("model-00001-of-00002.safetensors", [](const std::string& name) {
    return Contains(name, "h.0") || Contains(name, "wte") ? "_orig_mod.module." + name : "";
  });
  Write("model-00002-of-00002.safetensors", [](const std::string& name) {
    return Contains(name, "h.0") || Contains(name, "wte") ? "" : "_orig_mod.module." + name;
  });
  const ImportedModel imported = ImportModel({scratch_.path(), "", "", {}});
  EXPECT_EQ(imported.model.config(), model_.config());
  EXPECT_TRUE(SameWeights(imported.model, model_));
  WriteText(scratch_ / "model.safetensors.index.json",
            R"({"weight_map": {"transformer.h.9.x": "model-00003-of-00003.safetensors"}})");
  EXPECT_TRUE(Contains(Error(), "tensor 'transformer.h.9.x' should be in"));
}

TEST_F(DirectoryTest, AverageThatFitsSeveralPatternsNeedsTheOption) {
  ModelConfig config = Config();
  config.n_layer = 4;
  config.dwa = "4x4";  // reads X_0 and X_4; 3x4 reads X_1 and X_4
  Model model(config, DType::kF32, ModelUse::kInference);
  model.Initialize(1);
  WriteConfig();
  Write(
      "model.safetensors", [](const std::string& name) { return name; }, model);
  EXPECT_TRUE(Contains(Error(), "cannot be told from the averages, which fit 3x4, 4x4; give it by"))
      << Error();
  const ImportedModel imported = ImportModel({scratch_.path(), "", "4x4", {}});
  EXPECT_TRUE(SameWeights(imported.model, model));
}

TEST_F(DirectoryTest, SummaryOfAFinishedRunIsNoConfiguration) {
  WriteConfig();
  WriteText(scratch_ / "summary.json",
            R"({"format": "denseformer-summary", "model": {"n_layer": 4}, "steps": 20})");
  Write("model.safetensors", [](const std::string& name) { return name; });
  EXPECT_EQ(Error(), "no error");
}

TEST_F(DirectoryTest, MissingExtraAndUntied) {
  WriteConfig();
  auto same = [](const std::string& name) { return name; };
  Write("model.safetensors", same);
  EXPECT_EQ(Error(), "no error");
  Write("model.safetensors", [](const std::string& name) {
    return name == "transformer.h.1.mlp.c_fc.bias" ? "transformer.h.1.mlp.c_fx.bias" : name;
  });
  EXPECT_TRUE(Contains(Error(),
                       "'transformer.h.1.mlp.c_fc.bias' [32] is missing; "
                       "'transformer.h.1.mlp.c_fx.bias' [32] is no parameter"))
      << Error();
  // The head has other values than the embedding.
  std::vector<TensorToWrite> tensors = TensorsOf(model_.table(), {"", model_.weights().data()});
  std::vector<float> head(16 * 8, 1.0f);
  tensors.push_back({"lm_head.weight", StoredType::kF32, {16, 8}, head.data()});
  OutputFile file(scratch_ / "model.safetensors");
  WriteSafetensors(tensors, {}, [&](const void* data, size_t size) { file.Write(data, size); });
  file.Close();
  EXPECT_TRUE(Contains(Error(), "'lm_head.weight' differs from 'transformer.wte.weight'"));
}

TEST_F(DirectoryTest, OtherModelsAreRefused) {
  WriteConfig(R"(, "model_type": "gpt2")");
  auto same = [](const std::string& name) { return name; };
  Write("model.safetensors", same);
  EXPECT_TRUE(Contains(Error(), "GPT-2 has learned positions"));
  WriteConfig();
  Write("model.safetensors", [](const std::string& name) { return "x." + name; });
  EXPECT_TRUE(Contains(Error(), "not a model of this kind"));
  fs::remove(scratch_ / "model.safetensors");
  EXPECT_TRUE(Contains(Error(), "0 files of tensors"));
  EXPECT_TRUE(Contains(ErrorOf([&] {
                         ImportModel({scratch_ / "none", "", "", {}});
                       }),
                       "no such file or directory"));
  Write("model.safetensors", same);
  EXPECT_TRUE(Contains(ErrorOf([&] {
                         ImportModel({scratch_.path(), "", "", {"n_haed=2"}});
                       }),
                       "did you mean 'n_head'?"));
}

TEST_F(DirectoryTest, BfloatExportRoundsOnce) {
  const std::string out = scratch_ / "out";
  ExportModel(model_, out, ExportFormat::kNative, StoredType::kBF16, "");
  const Model loaded = LoadModel(out, DType::kF32, ModelUse::kInference);
  for (size_t i = 0; i < model_.weights().size(); ++i) {
    ASSERT_EQ(loaded.weights()[i], static_cast<float>(bf16(model_.weights()[i])));
  }
}

}  // namespace
}  // namespace denseformer
