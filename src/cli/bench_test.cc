// denseformer bench on a model of milliseconds: what it reports, never how fast it was.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/file.h"
#include "base/testing.h"
#include "cli/run_program.h"
#include "perf/benchmark.h"

namespace denseformer {
namespace {

using Json = nlohmann::json;

void ExpectTable(const Json& json) {
  EXPECT_TRUE(json["title"].is_string());
  EXPECT_GT(json["peak_memory_bytes"].get<double>(), 1e6);
  ASSERT_FALSE(json["rows"].empty());
  for (const Json& row : json["rows"]) {
    EXPECT_TRUE(row["name"].is_string());
    EXPECT_GT(row["median_seconds"].get<double>(), 0);
    EXPECT_LE(row["minimum_seconds"].get<double>(), row["median_seconds"].get<double>());
    EXPECT_GE(row["spread"].get<double>(), 0);
    EXPECT_EQ(row["rounds"], 1);
    EXPECT_EQ(row.contains("baseline"), row.contains("ratio_of_medians"));
    EXPECT_EQ(row.contains("baseline"), row.contains("ratio_error"));
    EXPECT_EQ(row.contains("limit"), row.contains("share_of_limit"));
  }
}

std::vector<std::string> Names(const Json& json) {
  std::vector<std::string> names;
  for (const Json& row : json["rows"]) names.push_back(row["name"]);
  return names;
}

TEST(BenchTest, MixersOfEveryPatternButNone) {
  for (const char* kind : {"forward", "train", "decode"}) {
    const ProgramResult result =
        RunProgram({"bench", kind, "--preset", "test", "--dwa", "none,2x1", "--mixer", "dynamic",
                    "--streams", "rv", "--mixer-norm", "prepost", "--rounds", "1", "--json"});
    ASSERT_EQ(result.status, 0) << kind << result.err;
    const Json json = Json::parse(result.out);
    ExpectTable(json);
    EXPECT_EQ(json["settings"]["mixer"], "dynamic, streams rv, norm prepost");
  }
  const ProgramResult several = RunProgram(
      {"bench", "forward", "--preset", "test", "--dwa",
       "none,2x1,2x1+dynamic+rv,1x1+attnres,2x1+dynamic+r+prepost", "--rounds", "1", "--json"});
  ASSERT_EQ(several.status, 0) << several.err;
  const std::vector<std::string> names = Names(Json::parse(several.out));
  EXPECT_EQ(std::count(names.begin(), names.end(), "2x1+dynamic+rv"), 1);
  EXPECT_EQ(std::count(names.begin(), names.end(), "1x1+attnres"), 1);
  const ProgramResult wrong = RunProgram(
      {"bench", "forward", "--preset", "test", "--dwa", "2x1", "--mixer", "dyn", "--rounds", "1"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_NE(wrong.err.find("model.mixer: got 'dyn'"), std::string::npos) << wrong.err;
  const ProgramResult parts = RunProgram(
      {"bench", "forward", "--preset", "test", "--dwa", "2x1+dynamic+r+none+5", "--rounds", "1"});
  EXPECT_EQ(parts.status, 2);
  EXPECT_NE(parts.err.find("expected PATTERN or PATTERN+MIXER+STREAMS+NORM"), std::string::npos)
      << parts.err;
}

TEST(BenchTest, EveryBenchmarkOfTheTableGivesATable) {
  const TemporaryDirectory scratch;
  WriteFileAtomic(scratch / "a.txt", std::string(10000, 'a'));
  for (const Benchmark& benchmark : Benchmarks()) {
    std::vector<std::string> call = {"bench", benchmark.name, "--rounds", "1", "--threads",
                                     "1",     "--json",       "--quiet"};
    const auto add = [&](unsigned options, const std::vector<std::string>& words) {
      if (benchmark.options & options) call.insert(call.end(), words.begin(), words.end());
    };
    add(kBenchPreset, {"--preset", "test"});
    add(kBenchPatterns, {"--dwa", "none,2x1"});
    add(kBenchBatch | kBenchShapes, {"--batch", "2"});
    add(kBenchText, {"--tokenizer", "bytes", "--text", scratch / "a.txt"});
    for (const char* precision : {"fp32", "bf16"}) {
      std::vector<std::string> with = call;
      if (benchmark.options & kBenchPrecision) with.insert(with.end(), {"--precision", precision});
      const ProgramResult result = RunProgram(with);
      ASSERT_EQ(result.status, 0) << benchmark.name << result.err;
      EXPECT_EQ(result.err, "") << benchmark.name;
      ExpectTable(Json::parse(result.out));
    }
  }
}

TEST(BenchTest, StepsOfDecodingByBatchAndContext) {
  const std::vector<std::string> call = {"bench",  "decode",      "--preset", "test",     "--dwa",
                                         "none",   "--precision", "int8",     "--rounds", "1",
                                         "--json", "--quiet",     "--batch",  "1,4"};
  std::vector<std::string> two = call;
  two.insert(two.end(), {"--context", "8,40"});
  const ProgramResult result = RunProgram(two);
  ASSERT_EQ(result.status, 0) << result.err;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json["settings"]["precision"], "int8");
  const Json& last = json["rows"].back();
  EXPECT_EQ(last["sequences"], 4);
  EXPECT_EQ(last["context"], 40);
  EXPECT_NEAR(last["tokens_per_second_per_sequence"].get<double>() * 4,
              last["tokens_per_second"].get<double>(),
              1e-3 * last["tokens_per_second"].get<double>());
  EXPECT_EQ(Names(json),
            (std::vector<std::string>{"1 x 8, read the weights once", "1 x 8, none",
                                      "4 x 8, read the weights once", "4 x 8, none",
                                      "1 x 40, read the weights once", "1 x 40, none",
                                      "4 x 40, read the weights once", "4 x 40, none"}));
  two.back() = "8,x";
  const ProgramResult wrong = RunProgram(two);
  EXPECT_EQ(wrong.status, 2);
  EXPECT_NE(wrong.err.find("--context: got 'x'"), std::string::npos) << wrong.err;
}

TEST(BenchTest, DecodingThatDoesNotFitIsRefusedBeforeMemoryIsTaken) {
  const std::vector<std::string> call = {"bench",  "decode",    "--preset", "paper-48",
                                         "--dwa",  "none",      "--rounds", "1",
                                         "--json", "--context", "1000000",  "--batch"};
  std::vector<std::string> one = call;
  one.push_back("1000");
  const ProgramResult result = RunProgram(one);
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.err.find("error: decoding 1000 x 1000000 tokens needs about "),
            std::string::npos)
      << result.err;
  EXPECT_NE(result.err.find("a smaller --batch or a shorter --context"), std::string::npos);
  if (!kSanitized) {
    EXPECT_LT(result.peak_bytes, int64_t{200} << 20);
  }
  // Of several, those that fit are measured.
  const ProgramResult some =
      RunProgram({"bench", "decode", "--preset", "test", "--dwa", "none", "--rounds", "1", "--json",
                  "--batch", "1,1000000", "--context", "1000000"});
  EXPECT_EQ(some.status, 0);
  EXPECT_NE(some.err.find("1000000 x 1000000 tokens: left out, it needs about "), std::string::npos)
      << some.err;
  EXPECT_EQ(Json::parse(some.out)["rows"].size(), 2u);
}

TEST(BenchTest, PrefillOfFrozenModels) {
  for (const char* precision : {"bf16", "int8"}) {
    const ProgramResult result =
        RunProgram({"bench", "prefill", "--preset", "test", "--dwa", "none", "--precision",
                    precision, "--rounds", "1", "--json", "--quiet", "--seq-len", "20"});
    ASSERT_EQ(result.status, 0) << result.err;
    const Json json = Json::parse(result.out);
    EXPECT_EQ(json["settings"]["precision"], precision);
    EXPECT_NE(json["settings"]["gemm"].get<std::string>().find("; alone: "), std::string::npos);
    EXPECT_EQ(Names(json), (std::vector<std::string>{"GEMMs alone", "none"}));
  }
  const ProgramResult wrong = RunProgram({"bench", "train", "--precision", "int8"});
  EXPECT_EQ(wrong.status, 2);
}

TEST(BenchTest, ForwardPassOfFrozenModels) {
  std::vector<std::string> call = {"bench",    "forward", "--preset", "test",       "--dwa",
                                   "none,2x1", "--batch", "2",        "--rounds",   "1",
                                   "--json",   "--quiet", "--frozen", "--precision"};
  for (const char* precision : {"fp32", "bf16", "int8"}) {
    call.push_back(precision);
    const ProgramResult result = RunProgram(call);
    call.pop_back();
    ASSERT_EQ(result.status, 0) << precision << result.err;
    const Json json = Json::parse(result.out);
    ExpectTable(json);
    EXPECT_EQ(json["settings"]["precision"], precision);
    EXPECT_EQ(json["settings"]["weights"], "frozen");
    EXPECT_NE(json["settings"]["gemm"].get<std::string>().find("; alone: "), std::string::npos);
    EXPECT_EQ(Names(json), (std::vector<std::string>{"GEMMs alone", "none", "2x1"}));
  }
  const ProgramResult wrong = RunProgram({"bench", "forward", "--precision", "int8"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_NE(wrong.err.find("--precision int8: only frozen models have it; add --frozen"),
            std::string::npos)
      << wrong.err;
}

// 64 models of 4,096 blocks, more than any machine holds: fp32 masters and bf16 copies take 3 times
// the memory of frozen models in bf16.
TEST(BenchTest, MemoryOfMastersAndOfFrozenModels) {
  std::string patterns = "none";
  for (int i = 1; i < 64; ++i) patterns += ",none";
  std::vector<std::string> call = {"bench",  "forward", "--depths", "4096",        "--dwa",
                                   patterns, "--batch", "1",        "--precision", "bf16"};
  const auto needed = [&] {
    const ProgramResult result = RunProgram(call);
    EXPECT_EQ(result.status, 1);
    const std::string text = "needs about ";
    const size_t at = result.err.find(text);
    EXPECT_NE(at, std::string::npos) << result.err;
    return at == std::string::npos ? 0.0 : std::stod(result.err.substr(at + text.size()));
  };
  const double masters = needed();
  call.push_back("--frozen");
  EXPECT_GT(masters, 2 * needed());
}

TEST(BenchTest, AnOptionThatWouldDoNothingIsUnknown) {
  const std::pair<const char*, const char*> cases[] = {
      {"optimizer", "--batch"}, {"gemm", "--dwa"}, {"dwa", "--depths"}, {"train", "--frozen"}};
  for (const auto& [kind, option] : cases) {
    const ProgramResult result = RunProgram({"bench", kind, option, "1"});
    EXPECT_EQ(result.status, 2) << kind;
    EXPECT_NE(result.err.find("unknown option '" + std::string(option)), std::string::npos)
        << result.err;
  }
}

TEST(BenchTest, MoreThanTheMemoryHoldsIsRefusedBeforeItIsTaken) {
  for (const char* kind : {"forward", "train"}) {
    const ProgramResult result = RunProgram({"bench", kind, "--batch", "1000000"});
    EXPECT_EQ(result.status, 1) << kind;
    EXPECT_NE(result.err.find("needs about"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("--batch"), std::string::npos) << result.err;
  }
}

TEST(BenchTest, DepthsAndPatternsAreRows) {
  const ProgramResult result =
      RunProgram({"bench", "forward", "--preset", "test", "--dwa", "none,2x1", "--depths", "2,4",
                  "--rounds", "1", "--threads", "1", "--json", "--quiet"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json json = Json::parse(result.out);
  ExpectTable(json);
  EXPECT_EQ(Names(json),
            (std::vector<std::string>{"2 blocks, GEMMs alone", "2 blocks, none", "2 blocks, 2x1",
                                      "4 blocks, GEMMs alone", "4 blocks, none", "4 blocks, 2x1"}));
}

TEST(BenchTest, BatchesAreRowsWithTheirOwnBaselineAndLimit) {
  const ProgramResult result =
      RunProgram({"bench", "train", "--preset", "test", "--dwa", "none,2x1", "--batch", "1,3",
                  "--seq-len", "8", "--rounds", "1", "--threads", "1", "--json", "--quiet"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json json = Json::parse(result.out);
  ExpectTable(json);
  EXPECT_EQ(json["settings"]["batch"], "1, 3 x 8 tokens");
  const Json& rows = json["rows"];
  ASSERT_EQ(rows.size(), 6u);
  for (const size_t limit : {0, 3}) {
    EXPECT_EQ(rows[limit]["tokens"], limit == 0 ? 8 : 24);
    EXPECT_FALSE(rows[limit].contains("pattern"));
    for (const size_t at : {limit + 1, limit + 2}) {
      EXPECT_EQ(rows[at]["tokens"], rows[limit]["tokens"]);
      EXPECT_EQ(rows[at]["blocks"], rows[limit]["blocks"]);
      EXPECT_EQ(rows[at]["limit"], rows[limit]["name"]);
      EXPECT_EQ(rows[at]["baseline"], rows[limit + 1]["name"]);
    }
    EXPECT_EQ(rows[limit + 2]["pattern"], "2x1");
  }
  EXPECT_EQ(rows[5]["name"], "3 x 8 tokens, 2x1");
}

TEST(BenchTest, RecomputationIsARowBesideItsPattern) {
  std::vector<std::string> call = {"bench",       "train",     "--preset", "test",     "--dwa",
                                   "none,2x1",    "--depths",  "2,4",      "--rounds", "1",
                                   "--recompute", "--threads", "1",        "--quiet"};
  const ProgramResult text = RunProgram(call);
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_NE(text.out.find("memory"), std::string::npos) << text.out;
  call.push_back("--json");
  const ProgramResult result = RunProgram(call);
  ASSERT_EQ(result.status, 0) << result.err;
  const Json json = Json::parse(result.out);
  ExpectTable(json);
  const Json& rows = json["rows"];
  ASSERT_EQ(rows.size(), 10u);
  for (const size_t limit : {0, 5}) {
    EXPECT_FALSE(rows[limit].contains("memory_bytes"));
    for (const size_t at : {limit + 1, limit + 3}) {
      const std::string name = rows[at]["name"];
      EXPECT_EQ(rows[at]["baseline"], rows[limit + 1]["name"]);
      EXPECT_EQ(rows[at + 1]["name"], name + ", recompute");
      EXPECT_EQ(rows[at + 1]["baseline"], name);
      EXPECT_EQ(rows[at + 1]["limit"], rows[limit]["name"]);
      EXPECT_LT(rows[at + 1]["memory_bytes"], rows[at]["memory_bytes"]);
    }
  }
}

TEST(BenchTest, AsTextForPeople) {
  const ProgramResult result = RunProgram({"bench", "forward", "--preset", "test", "--dwa",
                                           "none,2x1", "--rounds", "1", "--threads", "1"});
  ASSERT_EQ(result.status, 0) << result.err;
  for (const char* word : {"variant", "median ms", "ratio med/min", "of the limit", "2x1"}) {
    EXPECT_NE(result.out.find(word), std::string::npos) << word << result.out;
  }
}

// Each line on stdin begins a round; before it a line says how the last one went.
TEST(BenchTest, TurnsWithAnotherProgram) {
  const std::vector<std::string> call = {"bench",    "train",     "--preset", "test",    "--dwa",
                                         "none,2x1", "--rounds",  "3",        "--turns", "--json",
                                         "--quiet",  "--threads", "1"};
  const auto parts = [](const std::string& out, int lines) {
    std::istringstream stream(out);
    std::vector<Json> parts;
    std::string line;
    for (int i = 0; i < lines && std::getline(stream, line); ++i)
      parts.push_back(Json::parse(line));
    parts.push_back(Json::parse(stream));
    return parts;
  };
  const ProgramResult whole = RunProgram(call, "\n\n\n");
  ASSERT_EQ(whole.status, 0) << whole.err;
  const std::vector<Json> json = parts(whole.out, 3);
  ASSERT_EQ(json.size(), 4u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(json[i]["rounds"], i);
  EXPECT_FALSE(json[0].contains("seconds"));
  EXPECT_GT(json[1]["seconds"]["2x1"].get<double>(), 0);
  EXPECT_EQ(json[3]["rows"][0]["rounds"], 3);
  // Where the lines end, so does the measurement.
  const std::vector<Json> shorter = parts(RunProgram(call, "\n").out, 2);
  EXPECT_EQ(shorter.back()["rows"][0]["rounds"], 1);
  const ProgramResult none = RunProgram(call, "");
  EXPECT_EQ(none.status, 2);
  EXPECT_EQ(none.err,
            "error: bench --turns: stdin ended before the first round; send a line for each\n");
}

TEST(BenchTest, WrongCalls) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"bench"}, "expected a command"},
      {{"bench", "forwrad"}, "unknown command 'forwrad' (did you mean 'forward'?)"},
      {{"bench", "forward", "--preset", "tset"}, "preset: got 'tset'"},
      {{"bench", "forward", "--preset", "test", "--dwa", "5y"}, "depth pattern '5y'"},
      {{"bench", "forward", "--preset", "test", "--depths", "2,x"}, "--depths: got 'x'"},
      {{"bench", "forward", "--preset", "test", "--batch", "2,0"}, "--batch: got 0, expected"},
      {{"bench", "forward", "--preset", "test", "--depths", ""}, "--depths: got ''"},
      {{"bench", "forward", "--preset", "test", "--batch", ""}, "--batch: got ''"},
      {{"bench", "dwa", "--preset", "test", "--batch", "2,4"}, "--batch: got '2,4'"},
      {{"bench", "forward", "--rounds", "0"}, "--rounds: got '0', expected a whole number from 1"},
      {{"bench", "forward", "--seconds", "-1"},
       "--seconds: got '-1', expected a number of at least 0"},
      {{"bench", "tokenizer"}, "bench tokenizer: give --tokenizer PATH and --text FILE"},
      {{"bench", "dwa", "--preset", "test", "--dwa", "none"},
       "bench dwa: none of the patterns 'none' has an average"},
  };
  for (const auto& [call, message] : cases) {
    const ProgramResult result = RunProgram(call);
    EXPECT_EQ(result.status, 2) << message;
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find(message), std::string::npos) << result.err;
  }
}

}  // namespace
}  // namespace denseformer
