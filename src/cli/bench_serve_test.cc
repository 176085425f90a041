// denseformer bench serve: what it reports and refuses, never how fast it was.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/testing.h"
#include "cli/run_program.h"

namespace denseformer {
namespace {

using Json = nlohmann::json;

// The command with a model of milliseconds, whose context is 32 tokens.
ProgramResult Bench(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"bench",      "serve", "--threads",    "1",
                                        "--requests", "4",     "--max-tokens", "6"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunProgram(arguments);
}

TEST(BenchServeTest, ClosedLoopOfEveryConcurrencyWithAChart) {
  const TemporaryDirectory scratch;
  const std::string svg = scratch / "load.svg";
  const ProgramResult result = Bench({"--preset", "test", "--dwa", "2x1", "--prompt-tokens", "5",
                                      "--concurrency", "1,3", "--json", "--svg", svg});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json rows = Json::parse(result.out)["rows"];
  EXPECT_EQ(Json::parse(result.out)["warm_up"]["completed"], 3);
  ASSERT_EQ(rows.size(), 2u);
  for (size_t n = 0; n < 2; ++n) {
    const Json& row = rows[n];
    EXPECT_EQ(row["concurrency"], n == 0 ? 1 : 3);
    EXPECT_EQ(row["completed"], 4);
    EXPECT_EQ(row["failed"], 0);
    EXPECT_NEAR(row["output_tokens_per_second"].get<double>() * row["seconds"].get<double>(), 24,
                1e-6);
    for (const char* times : {"ttft_ms", "tpot_ms", "itl_ms"}) {
      EXPECT_LE(row[times]["p50"].get<double>(), row[times]["p99"].get<double>()) << times;
    }
  }
  EXPECT_NE(ReadFile(svg).find("requests at once"), std::string::npos);
  EXPECT_NE(ReadFile(svg).find("tokens per second"), std::string::npos);
}

TEST(BenchServeTest, RoundsTakeTurnsAndAreCompared) {
  const std::vector<std::string> call = {"--preset",        "test", "--dwa",         "2x1",
                                         "--prompt-tokens", "5",    "--concurrency", "1,2,3",
                                         "--rounds",        "2"};
  std::vector<std::string> with_json = call;
  with_json.insert(with_json.end(), {"--json", "--warm-up", "5"});
  const ProgramResult result = Bench(with_json);
  ASSERT_EQ(result.status, 0) << result.err;
  const Json answer = Json::parse(result.out);
  EXPECT_EQ(answer["warm_up"]["completed"], 5);
  std::string order;
  for (const Json& row : answer["rows"]) order += row["concurrency"].dump() + row["round"].dump();
  EXPECT_EQ(order, "102030213111");
  ASSERT_EQ(answer["ratios"].size(), 2u);
  for (const Json& ratio : answer["ratios"]) {
    EXPECT_EQ(ratio["to"], 1);
    for (const char* name : {"of_medians", "of_minima"}) EXPECT_GT(ratio[name].get<double>(), 0);
    for (const char* name : {"error", "spread", "spread_of_first"}) {
      EXPECT_GE(ratio[name].get<double>(), 0) << name;
    }
  }
  const ProgramResult table = Bench(call);
  ASSERT_EQ(table.status, 0) << table.err;
  EXPECT_NE(table.out.find("tokens/s, 3 to 1 at once: "), std::string::npos) << table.out;
}

TEST(BenchServeTest, OpenLoopAsATable) {
  const ProgramResult result =
      Bench({"--preset", "test", "--dwa", "2x1", "--prompt-tokens", "5", "--rate", "200"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("TTFT ms"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("200/s         4      0"), std::string::npos) << result.out;
}

TEST(BenchServeTest, WrongCallsAreOneLine) {
  struct Case {
    std::vector<std::string> arguments;
    int status;
    const char* message;
  };
  const Case cases[] = {
      {{}, 2, "expected one of RUN, --preset"},
      {{"run", "--preset", "test"}, 2, "expected one of RUN, --preset"},
      {{"run", "--port", "9"}, 2, "expected one of RUN, --preset"},
      {{"--preset", "test", "--concurrency", "0"}, 2, "--concurrency: got 0"},
      {{"--preset", "test", "--concurrency", "1", "--rate", "2"}, 2, "excludes"},
      {{"no-such-run"}, 1, "no-such-run"},
      {{"--preset", "nosuch"}, 2, "nosuch"},
      {{"--preset", "test", "--dwa", "bogus"}, 2, "bogus"},
      {{"--preset", "test", "--parameters", "[1]"}, 2, "parameters: expected a JSON object"},
      {{"--preset", "test", "--parameters", "{"}, 2, "parameters: expected a JSON object"},
      {{"--preset", "test", "--dwa", "2x1", "--parameters", R"({"top_q": 1})"},
       1,
       "top_q: unknown parameter"},
      {{"--port", "1"}, 1, "cannot connect to 127.0.0.1 port 1"},
      {{"--preset", "test", "--dwa", "2x1", "--prompt-tokens", "30"},
       1,
       "a text of 3 tokens, expected 6"},
  };
  for (const Case& wrong : cases) {
    const ProgramResult result = Bench(wrong.arguments);
    EXPECT_EQ(result.status, wrong.status) << result.err;
    EXPECT_NE(result.err.find(wrong.message), std::string::npos)
        << wrong.message << ": " << result.err;
  }
}

}  // namespace
}  // namespace denseformer
