// import and export as users call them.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/testing.h"
#include "cli/run_program.h"
#include "io/run_directory.h"

namespace denseformer {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class ImportCommandTest : public ::testing::Test {
 protected:
  ImportCommandTest() {
    ModelConfig config = ModelConfig::Preset("test");
    config.dwa = "none";
    Model model(config, DType::kF32, ModelUse::kInference);
    model.Initialize(1);
    CreateRun(run_, model, "");
  }
  TemporaryDirectory scratch_;
  const std::string run_ = scratch_ / "run";
};

TEST_F(ImportCommandTest, ExportThenImportAsDenseFormer) {
  const ProgramResult exported = RunProgram({"export", run_, "-o", scratch_ / "out", "--json"});
  ASSERT_EQ(exported.status, 0) << exported.err;
  EXPECT_EQ(nlohmann::json::parse(exported.out)["format"], "native");
  const ProgramResult imported =
      RunProgram({"import", scratch_ / "out", "-o", scratch_ / "dense", "--dwa", "2x2", "--json"});
  ASSERT_EQ(imported.status, 0) << imported.err;
  const auto json = nlohmann::json::parse(imported.out);
  EXPECT_EQ(json["dwa"], "2x2");
  EXPECT_EQ(json["identity_averages"], 2);
  EXPECT_EQ(ReadConfig(scratch_ / "dense").dwa, "2x2");
  const ProgramResult again = RunProgram({"import", scratch_ / "out", "-o", scratch_ / "dense"});
  EXPECT_EQ(again.status, 1);
  EXPECT_TRUE(Contains(again.err, "holds a run already")) << again.err;
}

TEST_F(ImportCommandTest, Int8ExportsComeBackWithTheSameLoss) {
  ModelConfig config = ModelConfig::Preset("test");
  config.dwa = "2x2";
  Model model(config, DType::kF32, ModelUse::kInference);
  model.Initialize(3);
  for (float& weight : model.weights()) weight *= 3;  // far from equal probabilities
  const std::string run = scratch_ / "trained", small = scratch_ / "int8";
  CreateRun(run, model, "");
  std::string tokens(4000, '\0');  // uint16 below 251
  for (size_t i = 0; i < tokens.size(); i += 2) tokens[i] = static_cast<char>(i * i % 251);
  WriteFileAtomic(scratch_ / "val.bin", tokens);
  const auto loss = [&](const std::string& directory, const char* precision) {
    const ProgramResult result = RunProgram(
        {"eval", directory, "--data", scratch_ / "val.bin", "--precision", precision, "--json"});
    EXPECT_EQ(result.status, 0) << result.err;
    return nlohmann::json::parse(result.out)["loss"].get<double>();
  };
  const ProgramResult exported = RunProgram({"export", run, "-o", small, "--precision", "int8"});
  ASSERT_EQ(exported.status, 0) << exported.err;
  const ProgramResult imported = RunProgram({"import", small, "-o", scratch_ / "again"});
  ASSERT_EQ(imported.status, 0) << imported.err;
  const double int8 = loss(run, "int8"), fp32 = loss(run, "fp32");
  EXPECT_NE(int8, fp32);
  EXPECT_NEAR(int8, fp32, 0.01 * fp32);
  // The export holds the integers that the run itself is rounded to.
  EXPECT_EQ(loss(small, "auto"), int8);
  EXPECT_EQ(loss(small, "int8"), int8);
  // The import holds their values; rounded again, their scales may differ in the last bit.
  EXPECT_EQ(loss(scratch_ / "again", "fp32"), loss(small, "fp32"));
  EXPECT_NEAR(loss(scratch_ / "again", "int8"), int8, 1e-5 * int8);
}

TEST_F(ImportCommandTest, TokenizerLargerThanTheVocabularyIsRefused) {
  WriteFileAtomic(scratch_ / "words.txt", std::string(4000, 'a') + " some words, and some more");
  const std::string tokenizer = scratch_ / "tokenizer.json";
  ASSERT_EQ(RunProgram({"tokenizer", "train", "--vocab", "260", "--output", tokenizer,
                        scratch_ / "words.txt"})
                .status,
            0);
  ModelConfig config = ModelConfig::Preset("test");
  config.vocab_size = 258;
  Model model(config, DType::kF32, ModelUse::kInference);
  model.Initialize(1);
  CreateRun(scratch_ / "small", model, "");
  const ProgramResult result =
      RunProgram({"import", scratch_ / "small", "-o", scratch_ / "out", "--tokenizer", tokenizer});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(Contains(result.err, "has 260 tokens, but the model's vocabulary has 258"))
      << result.err;
  EXPECT_FALSE(FileExists(scratch_ / "out"));
}

TEST_F(ImportCommandTest, FailuresLeaveNothingBehind) {
  OutputFile file(scratch_ / "bad.safetensors");
  file.Write("not tensors");
  file.Close();
  const ProgramResult result =
      RunProgram({"import", scratch_ / "bad.safetensors", "-o", scratch_ / "x"});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(Contains(result.err, "not a safetensors file?")) << result.err;
  EXPECT_EQ(scratch_.List(), (std::vector<std::string>{"bad.safetensors", "run"}));
  EXPECT_EQ(RunProgram({"export", run_, "-o", scratch_ / "y", "--dtype", "fp16"}).status, 2);
  EXPECT_EQ(RunProgram({"export", run_, "-o", run_}).status, 1);
}

}  // namespace
}  // namespace denseformer
