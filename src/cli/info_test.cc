// denseformer info, called as users call it.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/cpu.h"
#include "base/file.h"
#include "base/testing.h"
#include "cli/run_program.h"
#include "denseformer/tokenizer.h"
#include "io/run_directory.h"
#include "model/model.h"

namespace denseformer {
namespace {

using Json = nlohmann::json;

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Json InfoJson(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "info");
  arguments.push_back("--json");
  const ProgramResult result = RunProgram(arguments);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return Json::parse(result.out);
}

TEST(InfoTest, ParametersOfThePaper) {
  const std::tuple<const char*, const char*, int64_t, int64_t> cases[] = {
      {"paper-48", "none", 378446592, 0},         {"paper-64", "none", 491717376, 0},
      {"paper-72", "none", 548352768, 0},         {"paper-84", "none", 633305856, 0},
      {"paper-90", "none", 675782400, 0},         {"paper-48", "1x1", 378447816, 1224},
      {"paper-72", "1x1", 548355468, 2700},       {"paper-48", "2x1", 378446592 + 624, 624},
      {"paper-48", "4x1", 378446592 + 324, 324},  {"paper-48", "4x3", 378446592 + 112, 112},
      {"paper-48", "4x4", 378446592 + 90, 90},    {"paper-48", "4x5", 378446592 + 62, 62},
      {"paper-48", "12x1", 378446592 + 124, 124}, {"paper-48", "final", 378446592 + 49, 49},
  };
  for (const auto& [preset, dwa, parameters, weights] : cases) {
    const Json json = InfoJson({"--preset", preset, "--dwa", dwa});
    EXPECT_EQ(json["parameters"], parameters) << preset << " " << dwa;
    EXPECT_EQ(json["dwa_weights"], weights) << preset << " " << dwa;
  }
}

TEST(InfoTest, Mixers) {
  const auto info = [](const char* mixer, const char* streams) {
    return InfoJson({"--preset", "test", "--dwa", "2x2", "--mixer", mixer, "--streams", streams});
  };
  // Modules after blocks 2 and 4 of width 32, with 2 and 3 sources; the last one has one stream.
  const Json dynamic = info("dynamic", "rv");
  EXPECT_EQ(dynamic["parameters_by_group"]["mixer"], 4 + 4 * 32 + 4 * 4 + 3 + 3 * 32 + 3 * 3);
  EXPECT_EQ(dynamic["parameters_by_group"]["dwa"], 0);
  EXPECT_EQ(dynamic["flops_by_part"]["dwa"], 2 * 32 * (4 + 3) + 2 * 4 * 36 + 2 * 3 * 35);
  EXPECT_EQ(dynamic["starts_as_transformer"], true);
  EXPECT_EQ(info("attnres", "r")["parameters_by_group"]["mixer"], 2 * 32);
  EXPECT_EQ(info("attnres", "r")["starts_as_transformer"], false);
  EXPECT_EQ(info("static", "rv")["parameters_by_group"]["dwa"], 4 + 3);
  const std::vector<std::string> attnres = {"info", "--preset", "test",   "--dwa",
                                            "1x1",  "--mixer",  "attnres"};
  EXPECT_NE(RunProgram(attnres).out.find("attnres does not start as the plain Transformer"),
            std::string::npos);
  const ProgramResult none = RunProgram({"info", "--preset", "test", "--mixer", "dynamic"});
  EXPECT_EQ(none.status, 2);
  EXPECT_NE(none.err.find("which has no modules"), std::string::npos) << none.err;
}

TEST(InfoTest, JsonDescribesThePattern) {
  const Json json = InfoJson({"--preset", "test", "--dwa", "2x2"});
  EXPECT_EQ(json["dwa_modules"], 2);
  EXPECT_EQ(json["sources"], Json::parse("[[2, [0, 2]], [4, [0, 2, 4]]]"));
  EXPECT_EQ(json["config"]["dwa"], "2x2");
  EXPECT_EQ(json["config"]["n_layer"], 4);
  int64_t sum = 0;
  for (const auto& [group, count] : json["parameters_by_group"].items()) {
    sum += count.get<int64_t>();
  }
  EXPECT_EQ(json["parameters"], sum);
  EXPECT_EQ(InfoJson({"--preset", "test"})["sources"], Json::array());
  EXPECT_EQ(InfoJson({"--preset", "test", "--gains"})["parameters_by_group"]["gain"], 8);
}

TEST(InfoTest, FlopsCountTwoForAMultiplyAdd) {
  // D = 32, d = 4, V = 512, T = 32; 5 weights of the averages.
  const int64_t linear = 4 * (2 * 32 * (3 * 32 + 32 + 4 * 32 + 4 * 32));
  const int64_t head = 2 * 32 * 512, dwa = 2 * 32 * 5;
  const auto attention = [](int64_t length) {
    int64_t sum = 0;
    for (int64_t t = 0; t < length; ++t) sum += 4 * (2 * 32 * (t + 1)) * 2;
    return sum / length;
  };
  EXPECT_EQ(InfoJson({"--preset", "test", "--dwa", "2x2"})["flops_per_token_forward"],
            linear + head + dwa + attention(32));
  EXPECT_EQ(
      InfoJson({"--preset", "test", "--dwa", "2x2", "--length", "5"})["flops_per_token_forward"],
      linear + head + dwa + attention(5));
}

TEST(InfoTest, MemoryFollowsBatchAndPrecision) {
  const auto memory = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"--preset", "paper-48", "--dwa", "4x5"});
    return InfoJson(more)["memory_bytes"];
  };
  const Json fp32 = memory({"--precision", "fp32", "--batch-size", "4"});
  const Json bf16 = memory({"--precision", "bf16", "--batch-size", "4"});
  const Json large = memory({"--precision", "fp32", "--batch-size", "8"});
  const Json brief = memory({"--precision", "fp32", "--batch-size", "4", "--length", "64"});
  const int64_t weights = int64_t{378446592} * 4;
  EXPECT_GT(fp32["training"], 4 * weights);
  EXPECT_GT(fp32["inference"], weights);
  EXPECT_LT(fp32["inference"], 2 * weights);
  EXPECT_GT(large["training"], fp32["training"]);
  EXPECT_LT(brief["training"], fp32["training"]);
  EXPECT_NE(bf16["training"], fp32["training"]);
}

TEST(InfoTest, RecomputeSavesMemory) {
  std::vector<std::string> call = {"--preset", "small", "--dwa", "4x5", "--precision", "fp32"};
  const Json kept = InfoJson(call);
  call.push_back("--recompute");
  const Json recomputed = InfoJson(call);
  EXPECT_EQ(kept["recompute"]["on"], false);
  EXPECT_EQ(recomputed["recompute"]["on"], true);
  const int64_t saved = recomputed["recompute"]["saved_bytes"];
  EXPECT_GT(saved, 0);
  EXPECT_EQ(kept["memory_bytes"]["training"].get<int64_t>() - saved,
            recomputed["memory_bytes"]["training"]);
  EXPECT_EQ(kept["memory_bytes"]["inference"], recomputed["memory_bytes"]["inference"]);
  EXPECT_GT(recomputed["recompute"]["more_operations"], 0.1);
  call.insert(call.begin(), "info");
  const ProgramResult text = RunProgram(call);
  EXPECT_TRUE(Contains(text.out, "training with --recompute: ")) << text.out;
}

TEST(InfoTest, MemoryOfTrainingIsWithinTenPercent) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's memory cannot be told from the model's";
  const TemporaryDirectory scratch;
  std::string tokens(40000, '\0');  // uint16 below 256
  for (size_t i = 0; i < tokens.size(); i += 2) tokens[i] = static_cast<char>(i * i % 251);
  WriteFileAtomic(scratch / "train.bin", tokens);
  WriteFileAtomic(scratch / "val.bin", tokens);
  struct Case {
    const char *precision, *dwa;
    bool recompute = false;
  };
  for (const auto& [precision, dwa, recompute] :
       {Case{"fp32", "none"}, Case{"fp32", "1x1"}, Case{"bf16", "none"}, Case{"bf16", "1x1"},
        Case{"bf16", "1x1", true}}) {
    std::vector<std::string> model = {"--preset",    "tiny",    "--dwa",        dwa,
                                      "--precision", precision, "--batch-size", "64"};
    if (recompute) model.push_back("--recompute");
    const std::string run = scratch / fmt::format("{}-{}-{}", precision, dwa, recompute);
    std::vector<std::string> train = {"train",   run, "--data",         scratch.path(),
                                      "--steps", "2", "--eval-batches", "1"};
    train.insert(train.end(), model.begin(), model.end());
    const ProgramResult result = RunProgram(train);
    ASSERT_EQ(result.status, 0) << result.err;
    const double predicted = InfoJson(model)["memory_bytes"]["training"].get<double>();
    // Where bf16 GEMMs run on operands converted to fp32, info does not count these.
    const double share = precision == std::string_view("bf16") && !HasFastBf16() ? 0.15 : 0.1;
    EXPECT_NEAR(static_cast<double>(result.peak_bytes), predicted, share * predicted)
        << precision << " " << dwa << (recompute ? " recompute" : "");
  }
}

TEST(InfoTest, MemoryOfGenerationIsWithinTenPercent) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's memory cannot be told from the model's";
  const TemporaryDirectory scratch;
  WriteFileAtomic(scratch / "text.txt", std::string(4000, 'a'));
  const std::string data = scratch / "data", run = scratch / "run";
  const ProgramResult prepared =
      RunProgram({"data", "prepare", "--tokenizer", "bytes", "--output", data, scratch / "text.txt",
                  "--val", scratch / "text.txt"});
  ASSERT_EQ(prepared.status, 0) << prepared.err;
  const ProgramResult trained =
      RunProgram({"train",          run, "--data",       data,       "--steps",      "1",
                  "--eval-batches", "1", "--preset",     "paper-48", "--n-layer",    "12",
                  "--n-head",       "8", "--n-embd",     "512",      "--vocab-size", "4096",
                  "--batch-size",   "1", "--accumulate", "1"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  for (const char* precision : {"fp32", "bf16", "int8"}) {
    const ProgramResult result = RunProgram(
        {"generate", run, "--prompt", "aa", "--max-tokens", "254", "--precision", precision});
    ASSERT_EQ(result.status, 0) << result.err;
    const double predicted =
        InfoJson({run, "--precision", precision})["memory_bytes"]["generation"].get<double>();
    EXPECT_NEAR(static_cast<double>(result.peak_bytes), predicted, 0.1 * predicted) << precision;
  }
}

TEST(InfoTest, MemoryOfManySequencesAndLongContextsIsWithinTenPercent) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's memory cannot be told from the model's";
  const TemporaryDirectory scratch;
  ModelConfig config = ModelConfig::Preset("test");
  config.n_layer = 150;  // a page of keys and values takes 1.17 MiB in bf16, 2.34 MiB in fp32
  config.n_embd = 64;
  config.seq_len = 2048;
  const std::string run = scratch / "run";
  {
    Model model(config, DType::kF32, ModelUse::kInference);
    model.Initialize(1);
    CreateRun(run, model, Tokenizer::Bytes().ToJson());
  }
  struct Case {
    const char *precision, *samples, *length;
    std::string prompt;
    const char* max_tokens;
  };
  for (const Case& c : {Case{"fp32", "64", "96", "a", "95"}, Case{"bf16", "64", "96", "a", "95"},
                        Case{"fp32", "1", "2048", std::string(2042, 'a'), "6"},
                        Case{"bf16", "1", "2048", std::string(2042, 'a'), "6"}}) {
    const ProgramResult result =
        RunProgram({"generate", run, "--prompt", c.prompt, "--samples", c.samples, "--max-tokens",
                    c.max_tokens, "--precision", c.precision, "--ignore-end"});
    ASSERT_EQ(result.status, 0) << result.err;
    const double predicted = InfoJson({run, "--precision", c.precision, "--sequences", c.samples,
                                       "--length", c.length})["memory_bytes"]["generation"]
                                 .get<double>();
    EXPECT_NEAR(static_cast<double>(result.peak_bytes), predicted, 0.1 * predicted)
        << c.precision << " " << c.samples;
  }
}

TEST(InfoTest, RanksShareMomentsAndInBf16Masters) {
  const auto part = [](const char* precision, const char* ranks, const char* name) {
    const Json json =
        InfoJson({"--preset", "paper-48", "--precision", precision, "--ranks", ranks});
    return json["memory_by_part"]["training"][name].get<double>();
  };
  for (const char* precision : {"fp32", "bf16"}) {
    EXPECT_NEAR(part(precision, "4", "moments"), part(precision, "1", "moments") / 4, 1);
  }
  EXPECT_EQ(part("fp32", "4", "weights"), part("fp32", "1", "weights"));
  // All but the embedding and the vectors.
  EXPECT_LT(part("bf16", "4", "weights"), 0.4 * part("bf16", "1", "weights"));
  const Json sent = InfoJson(
      {"--preset", "paper-48", "--precision", "bf16", "--ranks", "4"})["sent_per_step_bytes"];
  EXPECT_LT(sent["weights"].get<double>(), 0.6 * sent["gradients"].get<double>());
  const ProgramResult wrong = RunProgram({"info", "--preset", "test", "--ranks", "9"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_TRUE(Contains(wrong.err, "--batch-size 8 on --ranks 9: each rank needs a sequence"))
      << wrong.err;
}

TEST(InfoTest, PipelineShowsWhatCrossesTheCuts) {
  const Json json =
      InfoJson({"--preset", "paper-48", "--dwa", "4x5", "--pipeline", "4", "--precision", "fp32"});
  std::vector<int> tensors, bytes;
  for (const Json& cut : json["pipeline"]["cuts"]) {
    tensors.push_back(cut["tensors"].get<int>());
    bytes.push_back(cut["bytes_per_token"].get<int>());
  }
  EXPECT_EQ(tensors, (std::vector<int>{7, 5, 2}));
  EXPECT_EQ(bytes, (std::vector<int>{4 * 768 * 8, 4 * 768 * 6, 4 * 768 * 3}));
  const ProgramResult table =
      RunProgram({"info", "--preset", "paper-48", "--dwa", "1x1", "--pipeline", "4"});
  EXPECT_TRUE(Contains(table.out, "pipeline of 4 stages")) << table.out;
  const ProgramResult wrong = RunProgram({"info", "--preset", "test", "--pipeline", "99"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_EQ(wrong.out, "");
  EXPECT_TRUE(Contains(wrong.err, "pipeline: got 99 stages, expected 1 to")) << wrong.err;
}

TEST(InfoTest, TableAndPicture) {
  const ProgramResult result = RunProgram({"info", "--preset", "test", "--dwa", "2x2"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err, "");
  for (const char* part : {"parameters", "embedding", "16,384", "FLOPs", "memory", "training",
                           "inference", "          2 | #.#\n", "          4 | #.#.#\n"}) {
    EXPECT_TRUE(Contains(result.out, part)) << part << "\n" << result.out;
  }
}

TEST(InfoTest, MaskFile) {
  const TemporaryDirectory scratch;
  WriteFileAtomic(scratch / "mask.txt", "# four blocks\n11\n000\n1 0 0 1\n00001\n");
  const Json json = InfoJson({"--preset", "test", "--dwa", scratch / "mask.txt"});
  EXPECT_EQ(json["sources"], Json::parse("[[1, [0, 1]], [3, [0, 3]], [4, [4]]]"));
  EXPECT_EQ(json["dwa_weights"], 5);
  WriteFileAtomic(scratch / "bad.txt", "11\n1111\n1111\n11111\n");
  const ProgramResult result =
      RunProgram({"info", "--preset", "test", "--dwa", scratch / "bad.txt"});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.err, "error: " + scratch / "bad.txt" +
                            ":2: block 2 cannot read X_3: only outputs up to X_2 exist (the mask "
                            "must be lower triangular)\n");
}

TEST(InfoTest, WrongCallsGetOneLineAndStatus2) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{}, "give either a run or --preset; presets are paper-48"},
      {{"run", "--preset", "test"}, "give either a run or --preset"},
      {{"--preset", "tset"}, "(did you mean 'test'?)"},
      {{"--preset", "test", "--dwa", "0x1"}, "depth pattern '0x1': K is 0, expected at least 1"},
      {{"--preset", "test", "--dwa", "1x5"}, "period P = 5 is larger than the depth 4"},
      {{"--preset", "test", "--dwa", "grouped:1x3"}, "period P = 3 does not divide the depth 4"},
      {{"--preset", "test", "--dwa", "no/file"}, "there is no file of that name"},
      {{"--preset", "test", "--verify"}, "--verify needs a run"},
      {{"run", "--dwa", "1x1"}, "--dwa goes with --preset"},
      {{"run", "--gains"}, "--gains goes with --preset"},
      {{"--preset", "test", "--precision", "fp16"}, "--precision"},
      {{"--preset", "test", "--batch-size", "0"}, "--batch-size"},
      {{"--preset", "test", "--length", "33"}, "expected at least one sequence of 1 to 32 tokens"},
      {{"--preset", "test", "--dwaa", "1x1"}, "unknown option '--dwaa' (did you mean '--dwa'?)"},
  };
  for (auto [arguments, message] : cases) {
    arguments.insert(arguments.begin(), "info");
    const ProgramResult result = RunProgram(arguments);
    EXPECT_EQ(result.status, 2) << message;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_TRUE(Contains(result.err, message)) << result.err;
  }
}

TEST(InfoTest, RunIsDescribedAndVerified) {
  const TemporaryDirectory scratch;
  const std::string run = scratch / "run";
  ModelConfig config = ModelConfig::Preset("test");
  config.dwa = "4x2";
  Model model(config, DType::kF32, ModelUse::kInference);
  model.Initialize(1);
  CreateRun(run, model, "");
  EXPECT_EQ(InfoJson({run})["config"]["dwa"], "4x2");
  EXPECT_EQ(InfoJson({run})["parameters"], model.table().count());

  const Json whole = InfoJson({run, "--verify"});
  EXPECT_EQ(whole["whole"], true);
  EXPECT_FALSE(whole["files"].empty());

  std::string bytes = ReadFile(run + "/model.safetensors");
  bytes[bytes.size() - 3] ^= 1;
  WriteFileAtomic(run + "/model.safetensors", bytes);
  const ProgramResult damaged = RunProgram({"info", run, "--verify"});
  EXPECT_EQ(damaged.status, 1);
  EXPECT_TRUE(Contains(damaged.out, "DAMAGED " + run + "/model.safetensors")) << damaged.out;
  EXPECT_TRUE(Contains(damaged.err, "error: " + run + ": 1 of ")) << damaged.err;
  const ProgramResult json = RunProgram({"info", run, "--verify", "--json"});
  EXPECT_EQ(json.status, 1);
  EXPECT_EQ(Json::parse(json.out)["whole"], false);

  const ProgramResult missing = RunProgram({"info", scratch / "none"});
  EXPECT_EQ(missing.status, 1);
  EXPECT_TRUE(Contains(missing.err, scratch / "none")) << missing.err;
}

}  // namespace
}  // namespace denseformer
