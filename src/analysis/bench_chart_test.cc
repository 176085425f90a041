#include "analysis/bench_chart.h"

#include "analysis/testing.h"

namespace denseformer {
namespace {

using Json = nlohmann::ordered_json;

Json Row(const char* name, double seconds, const char* baseline = nullptr, double ratio = 1) {
  Json row = {{"name", name}, {"median_seconds", seconds}};
  if (baseline != nullptr) {
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

TEST(BenchChart, SeveralDepthsAreLinesOfTheCost) {
  const Json bench = {{"title", "t"},
                      {"rows",
                       {Row("products alone, 24", 1), Row("24 blocks, none", 2, "24 blocks, none"),
                        Row("24 blocks, 1x1", 2.2, "24 blocks, none", 1.1),
                        Row("48 blocks, none", 4, "48 blocks, none"),
                        Row("48 blocks, 1x1", 5, "48 blocks, none", 1.25)}}};
  const Chart chart = BenchChart(bench);
  const auto& series = std::get<LineChart>(chart).series;
  ASSERT_EQ(series.size(), 1u);
  EXPECT_EQ(series[0].name, "1x1");
  EXPECT_EQ(series[0].x, (std::vector<double>{24, 48}));
  EXPECT_NEAR(series[0].y[0], 10, 1e-9);
  EXPECT_NEAR(series[0].y[1], 25, 1e-9);
}

}  // namespace
}  // namespace denseformer
