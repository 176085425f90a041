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

TEST_F(ImportCommandTest, TokenizerLargerThanTheVocabularyIsRefused) {
  WriteFileAtomic(scratch_ / "words.txt", std::string(4000, 'a') + " some words, and some more");
  const std::string tokenizer = scratch_ / "tokenizer.json";
  ASSERT_EQ(RunProgram({"tokenizer", "train", "--vocab", "260", "--out", tokenizer,
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
