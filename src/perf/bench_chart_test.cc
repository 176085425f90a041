#include "perf/bench_chart.h"

#include <gtest/gtest.h>

#include "chart/testing.h"

namespace denseformer {
namespace {

using Json = nlohmann::ordered_json;

Json Row(const std::string& name, double seconds, const std::string& baseline = "",
         double ratio = 1) {
  Json row = {{"name", name}, {"median_seconds", seconds}};
  if (!baseline.empty()) {
    row["baseline"] = baseline;
    row["ratio_of_medians"] = ratio;
  }
  return row;
}

TEST(BenchChart, OneDepthIsBars) {
  const Json bench = {{"title", "t"},
                      {"settings", {{"width", "64"}}},
                      {"rows", {Row("none", 0.5), Row("4x5", 0.75, "none", 1.5)}}};
  const Chart chart = BenchChart(bench);
  const auto& bars = std::get<BarChart>(chart).bars;
  ASSERT_EQ(bars.size(), 2u);
  EXPECT_EQ(bars[1].first, "4x5");
  EXPECT_DOUBLE_EQ(bars[1].second, 750);
  EXPECT_TRUE(Contains(ChartDescription(chart), "width 64"));
  EXPECT_EQ(XmlProblem(DrawSvg(chart, true)), "");
}

// The baseline of 24 blocks and 256 tokens is "none 24 256".
Json Point(int blocks, int tokens, const char* pattern, double ratio, bool recompute = false) {
  const std::string shape = " " + std::to_string(blocks) + " " + std::to_string(tokens);
  Json row = Row(pattern + shape + (recompute ? " again" : ""), ratio, "none" + shape, ratio);
  row["blocks"] = blocks;
  row["tokens"] = tokens;
  row["pattern"] = pattern;
  if (recompute) row["recompute"] = true;
  return row;
}

const std::vector<Series>& Lines(const Chart& chart) { return std::get<LineChart>(chart).series; }

TEST(BenchChart, SeveralDepthsAreLinesOfTheCost) {
  const Json bench = {
      {"title", "t"},
      {"rows",
       {Row("GEMMs alone", 1), Point(24, 256, "none", 1), Point(24, 256, "1x1", 1.1),
        Point(48, 256, "none", 1), Point(48, 256, "1x1", 1.25)}}};
  const Chart chart = BenchChart(bench);
  EXPECT_EQ(ChartTitle(chart), "Cost against depth: t");
  const auto& series = Lines(chart);
  ASSERT_EQ(series.size(), 1u);
  EXPECT_EQ(series[0].name, "1x1");
  EXPECT_EQ(series[0].x, (std::vector<double>{24, 48}));
  EXPECT_NEAR(series[0].y[0], 10, 1e-9);
  EXPECT_NEAR(series[0].y[1], 25, 1e-9);
  EXPECT_TRUE(Contains(DrawSvg(chart, true), ">24</text>"));  // on the axis: what was measured
  EXPECT_TRUE(Contains(DrawSvg(chart, true), ">48</text>"));
}

TEST(BenchChart, CostsHaveTheErrorsOfTheRatios) {
  Json bench = {{"title", "t"}, {"rows", {Point(24, 256, "1x1", 1.1), Point(48, 256, "1x1", 1.2)}}};
  const LineChart without = std::get<LineChart>(BenchChart(bench));
  EXPECT_EQ(without.series[0].errors, (std::vector<double>{0, 0}));
  EXPECT_EQ(without.y_label, "cost over the baseline, %");
  bench["rows"][1]["ratio_error"] = 0.25;
  const LineChart with = std::get<LineChart>(BenchChart(bench));
  EXPECT_EQ(with.series[0].errors, (std::vector<double>{0, 25}));
  EXPECT_EQ(with.y_label, "cost over the baseline, %; whiskers: standard error");
  EXPECT_EQ(Occurrences(DrawSvg(with, true), "class=\"line whisker\""), 1);
}

TEST(BenchChart, SeveralBatchesAreLinesOverTheTokens) {
  const Json bench = {
      {"title", "t"},
      {"rows",
       {Point(24, 256, "none", 1), Point(24, 256, "4x5", 1.5), Point(24, 512, "none", 1),
        Point(24, 512, "4x5", 1.25), Point(24, 512, "4x5", 2, /*recompute=*/true)}}};
  const Chart chart = BenchChart(bench);
  EXPECT_EQ(ChartId(chart), "bench-tokens");
  const auto& series = Lines(chart);
  ASSERT_EQ(series.size(), 2u);
  EXPECT_EQ(series[0].name, "4x5");
  EXPECT_EQ(series[0].x, (std::vector<double>{256, 512}));
  EXPECT_EQ(series[0].y, (std::vector<double>{50, 25}));
  EXPECT_EQ(series[1].name, "4x5, recompute");
  EXPECT_EQ(series[1].y, (std::vector<double>{100}));
}

TEST(BenchChart, DepthsAndBatchesAreLinesOverTheDepthForEachBatch) {
  Json bench = {{"title", "t"}, {"rows", Json::array()}};
  for (const int tokens : {256, 512}) {
    for (const int blocks : {2, 4}) bench["rows"].push_back(Point(blocks, tokens, "1x1", 1.5));
  }
  const auto chart = BenchChart(bench);
  const auto& series = Lines(chart);
  ASSERT_EQ(series.size(), 2u);
  EXPECT_EQ(series[0].name, "1x1, 256 tokens in a batch");
  EXPECT_EQ(series[1].name, "1x1, 512 tokens in a batch");
  EXPECT_EQ(series[1].x, (std::vector<double>{2, 4}));
}

}  // namespace
}  // namespace denseformer
