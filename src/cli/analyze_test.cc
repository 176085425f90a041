// analyze, report and the charts of bench as users call them.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/testing.h"
#include "cli/run_program.h"
#include "train/testing.h"

namespace denseformer {
namespace {

namespace fs = std::filesystem;

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class AnalyzeCommandTest : public testing::Test {
 protected:
  std::string TrainRun(const std::string& name, const std::string& dwa, int seed = 1,
                       int depth = 4) const {
    const std::string run = scratch_ / name;
    const ProgramResult result = RunProgram({"train",
                                             run,
                                             "--preset",
                                             "test",
                                             "--data",
                                             data_,
                                             "--dwa",
                                             dwa,
                                             "--quiet",
                                             "--threads",
                                             "1",
                                             "--steps",
                                             "6",
                                             "--eval-every",
                                             "3",
                                             "--eval-batches",
                                             "1",
                                             "--seed",
                                             std::to_string(seed),
                                             "--n-layer",
                                             std::to_string(depth),
                                             "--set",
                                             "log.alphas_every=2"});
    EXPECT_EQ(result.status, 0) << result.err;
    return run;
  }
  static ProgramResult Quiet(std::vector<std::string> call) {
    call.insert(call.end(), {"--quiet", "--threads", "1"});
    return RunProgram(call);
  }

  const TemporaryDirectory scratch_;
  const std::string data_ = MakeTestData(scratch_ / "data");
};

TEST_F(AnalyzeCommandTest, WritesEveryStudyAsJsonCsvAndSvg) {
  const std::string run = TrainRun("run", "2x2");
  const ProgramResult result = Quiet({"analyze", run});
  ASSERT_EQ(result.status, 0) << result.err;
  for (const std::string study :
       {"weights", "evolution", "sources", "cosine", "pruning", "spectra"}) {
    EXPECT_TRUE(Contains(result.out, "run: " + study)) << study;
    for (const char* end : {".json", ".csv"})
      EXPECT_TRUE(FileExists(run + "/analysis/" + study + end)) << study << end;
  }
  for (const char* chart :
       {"weights-run", "sources-run", "evolution", "cosine", "pruning", "spectra-0", "norm-x"}) {
    EXPECT_TRUE(FileExists(run + "/analysis/" + chart + ".svg")) << chart;
  }
}

TEST_F(AnalyzeCommandTest, ResultsAsJson) {
  const std::string run = TrainRun("run", "1x1");
  const ProgramResult result =
      Quiet({"analyze", run, "--study", "pruning", "--percents", "0,50", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  ASSERT_EQ(json["studies"].size(), 1u);
  EXPECT_EQ(json["studies"][0]["percent"], nlohmann::json({0, 50}));
  EXPECT_EQ(json["studies"][0]["pruned"], nlohmann::json({0, 7}));
}

TEST_F(AnalyzeCommandTest, MeanOfSeveralRuns) {
  const std::string a = TrainRun("a", "1x1"), b = TrainRun("b", "1x1", 2), out = scratch_ / "out";
  const ProgramResult result = Quiet({"analyze", a, b, "--study", "weights", "-o", out});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto mean = nlohmann::json::parse(ReadFile(out + "/mean/weights.json"));
  EXPECT_EQ(mean["runs"], nlohmann::json({"a", "b"}));
  EXPECT_TRUE(mean["standard_error"][4][0].is_number());
}

TEST_F(AnalyzeCommandTest, WrongInputGetsOneClearLine) {
  const std::string plain = TrainRun("plain", "none"), dense = TrainRun("dense", "1x1"),
                    deep = TrainRun("deep", "1x1", 1, 5), silent = TrainRun("silent", "1x1");
  fs::remove(silent + "/alphas.jsonl");
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"analyze", plain, "--study", "weights"}, "has no depth-weighted averages"},
      {{"analyze", silent, "--study", "evolution"}, "no snapshots of the weights"},
      {{"analyze", dense, deep, "--study", "weights", "-o", scratch_ / "o"}, "the depths differ"},
      {{"analyze", scratch_ / "none"}, "no such run directory"},
      {{"analyze", dense, "--data", scratch_ / "none", "--study", "cosine"}, "val.bin"},
      {{"report", dense, dense}, "given twice"},
      {{"report", dense, "-o", data_}, "is a directory, expected a file"},
      {{"report", dense, "--bench", data_ + "/val.bin", "-o", scratch_ / "r.html"},
       "expected the output of denseformer bench"},
  };
  for (const auto& [call, message] : cases) {
    const ProgramResult result = Quiet(call);
    EXPECT_NE(result.status, 0) << message;
    EXPECT_TRUE(Contains(result.err, message)) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
  EXPECT_FALSE(FileExists(scratch_ / "r.html"));
  EXPECT_EQ(Quiet({"analyze", dense, "--study", "wieghts"}).status, 2);
  EXPECT_NE(Quiet({"analyze", dense, "--study", "pruning", "--percents", "0,x"}).status, 0);
}

TEST_F(AnalyzeCommandTest, ReportWithChartsAndTable) {
  const std::string plain = TrainRun("plain", "none"), dense = TrainRun("dense", "1x1");
  const ProgramResult result = Quiet(
      {"report", plain, dense, "-o", scratch_ / "r.html", "--svg", scratch_ / "svg", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["runs"], 2);
  const std::string html = ReadFile(json["report"].get<std::string>());
  EXPECT_TRUE(Contains(html, "<title>DenseFormer report</title>"));
  EXPECT_TRUE(Contains(html, "id=\"weights-dense\""));  // without analyze
  EXPECT_TRUE(Contains(ReadFile(scratch_ / "svg/runs.csv"), "\"plain\",\"4 blocks, Transformer\""));
  EXPECT_TRUE(FileExists(scratch_ / "svg/weights-dense.svg"));
}

TEST_F(AnalyzeCommandTest, WatchRewritesThePageUntilTheRunIsFinished) {
  const std::string run = TrainRun("run", "1x1"), page = scratch_ / "r.html",
                    summary = ReadFile(run + "/summary.json"),
                    metrics = ReadFile(run + "/metrics.jsonl");
  fs::remove(run + "/summary.json");
  ProgramResult result;
  std::thread program([&] {
    result = Quiet({"report", run, "-o", page, "--watch", "--every", "1", "--no-samples"});
  });
  const auto wait_for = [&](const std::string& text) {
    for (int i = 0; i < 600; ++i) {
      if (FileExists(page) && Contains(ReadFile(page), text)) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return false;
  };
  EXPECT_TRUE(wait_for("data-refresh=\"1\""));
  WriteFileAtomic(run + "/metrics.jsonl",
                  metrics + "{\"step\": 777, \"loss\": 1, \"tokens\": 1, \"seconds\": 1}\n");
  EXPECT_TRUE(wait_for("777"));
  WriteFileAtomic(run + "/summary.json", summary);
  program.join();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_FALSE(Contains(ReadFile(page), "data-refresh="));
  EXPECT_EQ(result.out, page + "\n");
}

TEST_F(AnalyzeCommandTest, ReportGoesToStdoutAndDevices) {
  const std::string run = TrainRun("run", "1x1");
  const ProgramResult out = Quiet({"report", run, "-o", "-", "--no-samples"});
  EXPECT_EQ(out.status, 0) << out.err;
  EXPECT_EQ(out.out.rfind("<!DOCTYPE html>", 0), 0u) << out.out.substr(0, 100);
  EXPECT_TRUE(out.out.ends_with("</html>\n")) << out.out.substr(out.out.size() - 100);
  EXPECT_EQ(Quiet({"report", run, "-o", "/dev/null", "--no-samples"}).status, 0);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_EQ(Quiet({"report", run, "-o", "-", "--watch"}).status, 2);
}

TEST_F(AnalyzeCommandTest, DamagedMetricsAreNamedInTheReport) {
  const std::string run = TrainRun("run", "1x1");
  WriteFileAtomic(run + "/metrics.jsonl", "{\"step\":1,\"loss\":2}\nbroken\n");
  const ProgramResult result = Quiet({"report", run, "-o", scratch_ / "r.html"});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(Contains(result.err, "metrics.jsonl:2")) << result.err;
}

TEST_F(AnalyzeCommandTest, ABenchmarkOfOtherModelsIsNamed) {
  const std::string run = TrainRun("run", "1x1");
  const auto report = [&](const std::string& depth) {
    const ProgramResult bench = Quiet({"bench", "forward", "--preset", "test", "--dwa", "1x1",
                                       "--rounds", "1", "--depths", depth, "--json"});
    EXPECT_EQ(bench.status, 0) << bench.err;
    WriteFileAtomic(scratch_ / "bench.json", bench.out);
    return Quiet({"report", run, "--bench", scratch_ / "bench.json", "-o", scratch_ / "r.html"});
  };
  const ProgramResult other = report("3"), same = report("4");
  EXPECT_EQ(other.status, 0);
  EXPECT_TRUE(Contains(other.err, "bench.json: has no whole pass of the width")) << other.err;
  EXPECT_EQ(same.err, "");
}

TEST_F(AnalyzeCommandTest, BenchDrawsItsResult) {
  const std::vector<std::string> base = {"bench", "forward",  "--preset", "test",
                                         "--dwa", "none,1x1", "--rounds", "1"};
  std::vector<std::string> one = base, several = base;
  one.insert(one.end(), {"--svg", scratch_ / "one.svg"});
  one.insert(one.end(), {"--batch", "1"});
  several.insert(several.end(), {"--batch", "1,2", "--svg", scratch_ / "several.svg"});
  ASSERT_EQ(Quiet(one).status, 0);
  ASSERT_EQ(Quiet(several).status, 0);
  EXPECT_TRUE(Contains(ReadFile(scratch_ / "one.svg"), "class=\"chart bars\""));
  EXPECT_TRUE(Contains(ReadFile(scratch_ / "several.svg"), "class=\"chart lines\""));
}

}  // namespace
}  // namespace denseformer
