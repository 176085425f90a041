#include "analysis/tradeoff.h"

#include <gtest/gtest.h>

#include <cmath>

namespace denseformer {
namespace {

using Json = nlohmann::ordered_json;

RunData MakeRun(const std::string& name, int depth, const std::string& dwa, double perplexity) {
  RunData run;
  run.name = name;
  run.config = ModelConfig::Preset("test");
  run.config.n_layer = depth;
  run.config.dwa = dwa;
  run.summary = {{"seconds", 120}, {"validation", {{"perplexity", perplexity}}}};
  return run;
}

Json Bench(const char* title, const char* width) {
  return {{"title", title}, {"settings", {{"width", width}}}, {"rows", Json::array()}};
}

Json Row(int blocks, const char* pattern, double seconds) {
  return {{"blocks", blocks}, {"pattern", pattern}, {"median_seconds", seconds}};
}

const ScatterChart* Find(const std::vector<Chart>& charts, const std::string& id) {
  for (const Chart& chart : charts) {
    if (ChartId(chart) == id) return &std::get<ScatterChart>(chart);
  }
  return nullptr;
}

TEST(Tradeoff, SpeedsOfMixersAreTheirOwn) {
  Json old = Bench("whole forward pass", "32"), dynamic = old;
  old["rows"] = {Row(4, "none", 0.5), Row(4, "1x1", 0.8)};
  dynamic["settings"]["mixer"] = "dynamic, streams rv, norm none";
  dynamic["rows"] = {Row(4, "none", 0.25), Row(4, "1x1", 2)};
  ModelConfig model = MakeRun("a", 4, "1x1", 20).config;
  EXPECT_DOUBLE_EQ(ForwardRate({dynamic, old}, model), 1.25);
  model.mixer = "dynamic";
  EXPECT_TRUE(std::isnan(ForwardRate({dynamic, old}, model)));
  model.streams = "rv";
  EXPECT_DOUBLE_EQ(ForwardRate({old, dynamic}, model), 0.5);
  model.dwa = "none";
  EXPECT_DOUBLE_EQ(ForwardRate({dynamic, old}, model), 4);  // has no mixer
}

TEST(Tradeoff, SpeedsComeFromTheBenchOfTheSameModel) {
  Json one = Bench("whole forward pass", "32");
  Json recomputing = Row(4, "1x1", 5);
  recomputing["recompute"] = true;
  one["rows"] = {{{"blocks", 4}, {"median_seconds", 0.1}},
                 Row(4, "none", 0.5),
                 recomputing,
                 Row(4, "1x1", 0.8)};
  Json several = Bench("whole forward pass", "32");
  several["rows"] = {Row(4, "1x1", 7), Row(8, "1x1", 2)};
  Json other_width = Bench("whole forward pass", "768");
  other_width["rows"] = {Row(6, "1x1", 1)};
  const std::vector<RunData> runs = {MakeRun("a", 4, "none", 30), MakeRun("b", 4, "1x1", 20),
                                     MakeRun("c", 8, "1x1", 10), MakeRun("d", 6, "1x1", 15)};
  const std::vector<Chart> charts = TradeoffCharts(runs, {other_width, one, several});
  EXPECT_EQ(Find(charts, "dilation"), nullptr);  // all have K = 1
  const ScatterChart* pareto = Find(charts, "pareto");
  ASSERT_NE(pareto, nullptr);
  ASSERT_EQ(pareto->points.size(), 3u);  // no bench for d
  EXPECT_TRUE(HasSpeedOf(several, runs[2]));
  EXPECT_FALSE(HasSpeedOf(several, runs[0]));  // another pattern
  EXPECT_FALSE(HasSpeedOf(other_width, runs[3]));
  EXPECT_DOUBLE_EQ(pareto->points[0].x, 2);
  EXPECT_DOUBLE_EQ(pareto->points[1].x, 1.25);
  EXPECT_DOUBLE_EQ(pareto->points[2].x, 0.5);
  EXPECT_EQ(pareto->points[2].y, 10);
  EXPECT_EQ(pareto->points[2].label, "8 blocks, 1x1");
  EXPECT_EQ(pareto->points[2].color, 2);
  EXPECT_EQ(pareto->points[0].group, "Transformer");
  EXPECT_EQ(pareto->points[1].group, "DenseFormer 1x1");
  EXPECT_EQ(Find(charts, "pareto-training"), nullptr);
  EXPECT_EQ(Find(charts, "perplexity-time"), nullptr);  // all took as long
}

TEST(Tradeoff, TimeInMinutes) {
  RunData longer = MakeRun("b", 4, "1x1", 20);
  longer.summary["seconds"] = 180;
  const std::vector<Chart> charts = TradeoffCharts({MakeRun("a", 4, "none", 30), longer}, {});
  const ScatterChart* time = Find(charts, "perplexity-time");
  ASSERT_NE(time, nullptr);
  EXPECT_DOUBLE_EQ(time->points[0].x, 2);
  EXPECT_DOUBLE_EQ(time->points[1].x, 3);
}

TEST(Tradeoff, DilationAndPeriod) {
  const std::vector<Chart> charts = TradeoffCharts(
      {MakeRun("a", 4, "1x1", 30), MakeRun("b", 4, "4x1", 20), MakeRun("c", 4, "4x5", 10),
       MakeRun("d", 4, "final", 5), MakeRun("e", 4, "grouped:2x2", 4)},
      {});
  const ScatterChart *dilation = Find(charts, "dilation"), *period = Find(charts, "period");
  ASSERT_NE(dilation, nullptr);
  ASSERT_EQ(dilation->points.size(), 2u);
  EXPECT_EQ(dilation->points[1].x, 4);
  ASSERT_NE(period, nullptr);
  ASSERT_EQ(period->points.size(), 3u);
  EXPECT_EQ(period->points[2].x, 5);
}

TEST(Tradeoff, RunsWithoutResultsAndDamagedBenches) {
  RunData unfinished = MakeRun("a", 4, "none", 1);
  unfinished.summary = Json();
  RunData odd = MakeRun("b", 4, "none", 1);
  odd.summary = {{"seconds", "x"}, {"validation", 3}};
  EXPECT_TRUE(TradeoffCharts({unfinished, odd}, {Json::object(), {{"title", 3}}}).empty());
  EXPECT_TRUE(TradeoffCharts({MakeRun("c", 4, "none", 1)}, {}).empty());  // one point is no chart
}

}  // namespace
}  // namespace denseformer
