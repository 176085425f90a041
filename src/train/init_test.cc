// train.init: the first step computes what the source computes, for every kind of source.
#include "train/init.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "io/import_export.h"
#include "io/run_directory.h"
#include "train/evaluate.h"
#include "train/testing.h"
#include "train/trainer.h"

namespace denseformer {
namespace {

class InitTest : public TrainingTest {
 protected:
  static ModelConfig Config(const std::string& dwa) {
    ModelConfig config = ModelConfig::Preset("test");
    config.dwa = dwa;
    return config;
  }
  // A model in which every parameter has a value of its own.
  static Model MakeModel(const ModelConfig& config) {
    Model model(config, DType::kF32, ModelUse::kInference);
    model.Initialize(3);
    Random random(7);
    for (const Parameter& parameter : model.table().all()) {
      float* values = model.weights().data() + parameter.offset;
      for (int64_t i = 0; i < parameter.count(); ++i) {
        values[i] += static_cast<float>(0.02 * (random.Uniform() - 0.5));
      }
    }
    model.WeightsChanged();
    return model;
  }
  std::string Save(const std::string& name, const Model& model) {
    CreateRun(scratch_ / name, model, "");
    return scratch_ / name;
  }
  double Loss(const Model& model) const {
    Activations activations(model, 4, model.config().seq_len, ModelUse::kInference);
    return EvaluateStream(model, TokenFile(data_ + "/val.bin"), activations, {}).loss;
  }
  double LossFrom(const std::string& source, const ModelConfig& config) const {
    Model model(config, DType::kF32, ModelUse::kTraining);
    InitializeFrom(source, 11, model);
    return Loss(model);
  }
  static std::string Refusal(const ModelConfig& source, const ModelConfig& config) {
    return ErrorOf([&] { CheckInit(source, config, "there"); });
  }
};

TEST_F(InitTest, ATransformerBecomesAnyDenseFormerOfTheSameLoss) {
  const Model plain = MakeModel(Config("none"));
  const std::string source = Save("plain", plain);
  const double loss = Loss(plain);
  for (const char* dwa : {"none", "1x1", "2x2", "last:2", "final", "grouped:1x2"}) {
    EXPECT_EQ(LossFrom(source, Config(dwa)), loss) << dwa;
  }
  for (const char* streams : {"r", "rv", "rqkv"}) {
    for (const char* mixer : {"static", "dynamic"}) {
      ModelConfig config = Config("1x1");
      config.mixer = mixer;
      config.streams = streams;
      EXPECT_NEAR(LossFrom(source, config), loss, 1e-6) << mixer << " " << streams;
    }
  }
  ModelConfig more = Config("none");
  more.bias = more.gains = true;
  EXPECT_NEAR(LossFrom(source, more), loss, 1e-6);
}

TEST_F(InitTest, AverageThatReadsMoreKeepsItsWeights) {
  const Model dense = MakeModel(Config("2x2"));
  const std::string source = Save("dense", dense);
  EXPECT_EQ(LossFrom(source, Config("2x2")), Loss(dense));
  EXPECT_NEAR(LossFrom(source, Config("1x1")), Loss(dense), 1e-6);
  EXPECT_NE(Refusal(Config("2x2"), Config("2x3")).find("have no place in a model with dwa 2x3"),
            std::string::npos);
  EXPECT_NE(Refusal(Config("2x2"), Config("none")).find("have no place"), std::string::npos);
}

TEST_F(InitTest, WhatDoesNotFitIsNamed) {
  ModelConfig other = Config("none");
  other.vocab_size = 600;
  EXPECT_EQ(Refusal(Config("none"), other),
            "train.init: model.vocab_size is 600, but the weights at there have 512");
  other = Config("none");
  other.n_layer = 2;
  EXPECT_NE(Refusal(Config("none"), other).find("model.n_layer is 2"), std::string::npos);
  ModelConfig gains = Config("none");
  gains.gains = true;
  EXPECT_NE(Refusal(gains, Config("none")).find("model.gains is 0"), std::string::npos);
  ModelConfig attnres = Config("1x1");
  attnres.mixer = "attnres";
  EXPECT_NE(Refusal(Config("none"), attnres).find("does not start as the plain Transformer"),
            std::string::npos);
  EXPECT_NE(ErrorOf([&] { InitConfig(scratch_ / "none"); }).find("no run, file or directory at"),
            std::string::npos);
}

TEST_F(InitTest, EveryKindOfSource) {
  const Model model = MakeModel(Config("2x2"));
  const double loss = Loss(model);
  for (const auto format : {ExportFormat::kNative, ExportFormat::kHuggingFace}) {
    const std::string source = scratch_ / std::to_string(static_cast<int>(format));
    ExportModel(model, source, format, StoredType::kF32, "");
    EXPECT_EQ(InitConfig(source), model.config());
    EXPECT_EQ(LossFrom(source, model.config()), loss);
    EXPECT_EQ(LossFrom(source + "/model.safetensors", model.config()), loss);
  }
}

TEST_F(InitTest, TrainsFromARunAndItsCheckpoints) {
  TrainRequest first;
  first.run = scratch_ / "first";
  first.options = ShortRun(data_, 4);
  first.options.model.dwa = "none";
  const auto summary = Train(first);

  OptionSources sources;
  sources.preset = "test";
  sources.flags = {{"data.path", data_},        {"train.init", first.run}, {"model.dwa", "2x2"},
                   {"train.precision", "fp32"}, {"train.steps", "2"},      {"eval.every", "1"},
                   {"eval.batches", "2"}};
  TrainRequest second;
  second.run = scratch_ / "second";
  second.options = ResolveOptions(sources);
  EXPECT_EQ(second.options.model.dwa, "2x2");
  EXPECT_EQ(second.options.model.vocab_size, first.options.model.vocab_size);
  Train(second);
  // Validated before the first step, and not the same as at the end.
  std::vector<double> losses;
  for (const auto& record : ReadJsonLines(second.run + "/metrics.jsonl")) {
    if (record.contains("val_loss")) losses.push_back(record["val_loss"]);
  }
  ASSERT_EQ(losses.size(), 3u);
  const Model source = LoadModel(first.run, DType::kF32, ModelUse::kInference);
  EXPECT_DOUBLE_EQ(Loss(source), summary["validation"]["loss"].get<double>());
  for (const CheckpointInfo& checkpoint : ListCheckpoints(first.run)) {
    EXPECT_EQ(InitConfig(checkpoint.path), first.options.model);
  }
  EXPECT_EQ(LossFrom(ListCheckpoints(first.run).back().path, Config("1x1")), Loss(source));
}

}  // namespace
}  // namespace denseformer
