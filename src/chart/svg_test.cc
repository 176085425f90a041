#include "chart/svg.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "chart/testing.h"

namespace denseformer {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr const char* kHostile = "</title><script>alert(\"1\")</script>&amp;'\x01\xff";

TEST(XmlChecker, FindsWhatIsWrong) {
  EXPECT_EQ(XmlProblem("<?xml version=\"1.0\"?><a b=\"1\"><c/>x &lt; y</a>"), "");
  for (const char* wrong : {"<a>", "<a></b>", "<a b=1/>", "<a b=\"1\" b=\"2\"/>", "a & b", "1 < 2",
                            "<a b=\"<\"/>", "<a b=\"&x\"/>", "</a>", "\x02"}) {
    EXPECT_NE(XmlProblem(wrong), "") << wrong;
  }
}

TEST(EscapeXml, LeavesNothingThatXmlForbids) {
  EXPECT_EQ(EscapeXml("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
  EXPECT_EQ(EscapeXml("x\x01y\nz\t"), "xy\nz\t");
  EXPECT_EQ(EscapeXml("Ω€😀"), "Ω€😀");
  // Alone, overlong, surrogate, cut off, not a character.
  EXPECT_EQ(EscapeXml("a\xffz"), "a\xEF\xBF\xBDz");
  EXPECT_EQ(EscapeXml("\xC0\xAF"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(Occurrences(EscapeXml("\xED\xA0\x80"), "\xEF\xBF\xBD"), 3);
  EXPECT_EQ(EscapeXml("\xE2\x82"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(EscapeXml("\xEF\xBF\xBF"), "");
}

TEST(Numbers, ForPeople) {
  const std::pair<double, const char*> numbers[] = {
      {0, "0"},          {-0.0, "0"},         {0.12345, "0.1235"},
      {999.96, "1,000"}, {12345.6, "12,346"}, {1.5e-5, "1.5e-5"},
      {-2e20, "-2e20"},  {kNone, "–"}};
  for (const auto& [value, text] : numbers) EXPECT_EQ(ShortNumber(value), text);
  const std::pair<double, const char*> ticks[] = {{-1e-17, "0"},  {0.025, "0.025"}, {9000, "9000"},
                                                  {20000, "20k"}, {1.5e6, "1.5M"},  {3e9, "3B"},
                                                  {1e-5, "1e-5"}, {-0.5, "-0.5"}};
  for (const auto& [value, text] : ticks) EXPECT_EQ(TickLabel(value), text);
  EXPECT_EQ(SourceName(10), "X₁₀");
  EXPECT_EQ(Shortened("abc", 100), "abc");
  EXPECT_EQ(Shortened("ααααααααααααααααααααα", 66), "ααααααααα…");
}

TEST(NiceTicks, RoundInsideAndNotTooMany) {
  for (double low : {-1234.5, -1.0, 0.0, 0.001, 17.0}) {
    for (double width : {1e-6, 0.3, 1.0, 7.7, 1e9}) {
      const std::vector<double> ticks = NiceTicks(low, low + width, 6);
      ASSERT_GE(ticks.size(), 2u) << low << " " << width;
      ASSERT_LE(ticks.size(), 8u) << low << " " << width;
      for (double tick : ticks) {
        EXPECT_GE(tick, low - 1e-6 * width);
        EXPECT_LE(tick, low + width * (1 + 1e-6));
      }
    }
  }
  EXPECT_EQ(NiceTicks(0, 1, 5), (std::vector<double>{0, 0.2, 0.4, 0.6000000000000001, 0.8, 1}));
  EXPECT_EQ(NiceTicks(3, 3, 5), std::vector<double>{3});
  EXPECT_FALSE(std::signbit(NiceTicks(-1, 1, 4)[2]));
}

// Numbers with many digits in a narrow range: some lines have no label, none runs into another.
TEST(SvgAxes, LabelsDoNotMeet) {
  const Scale x{0.0018, 0.00195, 68, 450, false}, y{0, 1, 200, 20, false};
  const std::string axes = SvgAxes(x, y, "", "");
  size_t labels = 0;
  double last = -1e9;
  for (double tick : x.Ticks(6)) {
    if (axes.find(">" + TickLabel(tick) + "<") == std::string::npos) continue;
    EXPECT_GT(x(tick), last + 6.0 * static_cast<double>(TickLabel(tick).size()));
    last = x(tick);
    ++labels;
  }
  EXPECT_GE(labels, 2u);
  EXPECT_LT(labels, x.Ticks(6).size());
}

TEST(Scale, LogarithmicTicksFitAnyRange) {
  for (double decades : {0.01, 0.5, 1.0, 2.0, 5.0, 30.0, 200.0}) {
    Scale scale{1e-100, 1e-100 * std::pow(10, decades), 0, 1, true};
    const size_t count = scale.Ticks(5).size();
    EXPECT_GE(count, 2u) << decades;
    EXPECT_LE(count, 8u) << decades;
  }
  const Scale scale{0.1, 1000, 0, 400, true};
  EXPECT_DOUBLE_EQ(scale(1), 100);
  EXPECT_LT(scale(0), 0);  // below all, but somewhere
}

TEST(FitScale, HasRoomAroundTheValues) {
  const Scale scale = FitScale({2, kNone, 4}, 10, 20, false);
  EXPECT_DOUBLE_EQ(scale.low, 2 - 0.08);
  EXPECT_DOUBLE_EQ(scale.high, 4 + 0.08);
  for (bool log : {false, true}) {
    for (const std::vector<double>& values :
         {std::vector<double>{}, {kNone}, {5.0}, {5.0, 5.0}, {-1.0}, {0.0}}) {
      const Scale some = FitScale(values, 0, 1, log);
      EXPECT_GT(some.high, some.low);
      EXPECT_TRUE(!log || some.low > 0);
    }
  }
}

TEST(FitScale, HasAnEndAndTicksForAnyNumbers) {
  const double tiny = std::numeric_limits<double>::min(), huge = 1e308;
  for (const std::vector<double>& values :
       {std::vector<double>{1, huge}, {tiny, 1}, {tiny, huge}}) {
    const Scale scale = FitScale(values, 0, 1, /*log=*/true);
    ASSERT_TRUE(std::isfinite(scale.high));
    ASSERT_GT(scale.low, 0);
    EXPECT_GE(scale.Ticks(5).size(), 2u);
    EXPECT_LE(scale.Ticks(5).size(), 8u);
  }
}

LineChart Lines() {
  LineChart chart{"id", "title", "description", "x axis", "y axis", {}, false};
  chart.series.push_back({"first", {0, 1, 2, 3, 4}, {0, 10, kNone, 5, 10}, -1});
  return chart;
}

TEST(DrawLines, PointsStandWhereTheyBelong) {
  const std::string svg = DrawSvg(Lines(), /*standalone=*/false);
  // 4 % of room on each side of [0, 4] and [0, 10].
  const auto x = [](double v) {
    return kLeft + (kChartWidth - kRight - kLeft) * (v + 0.16) / 4.32;
  };
  const auto y = [](double v) { return PlotTop(false) + kPlotHeight * (1 - (v + 0.4) / 10.8); };
  EXPECT_TRUE(
      Contains(svg, fmt::format("d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}M{:.1f} {:.1f}L{:.1f} {:.1f}\"",
                                x(0), y(0), x(1), y(10), x(3), y(5), x(4), y(10))))
      << svg;
  EXPECT_TRUE(Contains(svg, "data-xs=\"0,1,2,3,4\" data-ys=\"0,10,,5,10\""));
}

TEST(DrawLines, CostsAreSeenFromZero) {
  LineChart chart = Lines();
  chart.series[0] = {"cost", {12, 24, 48}, {5, 5.5, 6}, -1};
  EXPECT_FALSE(Contains(DrawSvg(chart, false), ">0</text>"));
  chart.from_zero = true;
  EXPECT_TRUE(Contains(DrawSvg(chart, false), ">0</text>"));
}

TEST(DrawLines, ErrorsAreWhiskersInsideThePlot) {
  LineChart chart = Lines();
  chart.series[0] = {"a", {0, 1, 2, 3, 4}, {5, 5, 5, 5, kNone}, 3, {5, 0, kNone, -1, 1}};
  const std::string svg = DrawSvg(chart, /*standalone=*/true);
  ASSERT_EQ(Occurrences(svg, "line whisker"), 1) << svg;  // the first point alone has an error
  // 4 % of room on each side of [0, 4] and of [5 - 5, 5 + 5].
  const double x = kLeft + (kChartWidth - kRight - kLeft) * 0.16 / 4.32;
  const auto y = [](double v) { return PlotTop(true) + kPlotHeight * (1 - (v + 0.4) / 10.8); };
  EXPECT_TRUE(Contains(svg, fmt::format("M{:.1f} {:.1f}V{:.1f}\"", x, y(0), y(10)))) << svg;
  EXPECT_TRUE(Contains(svg, fmt::format("cx=\"{:.1f}\" cy=\"{:.1f}\"", x, y(5)))) << svg;
  EXPECT_TRUE(Contains(svg, "<g class=\"k3\">"));
  EXPECT_TRUE(Contains(svg, "<title>a, x axis 0: 5 ± 5</title>"));
  EXPECT_FALSE(Contains(DrawSvg(chart, /*standalone=*/false), "whisker"));
}

// Where the whiskers of each line stand, in pixels.
std::vector<double> WhiskerPlaces(const LineChart& chart) {
  const std::string svg = DrawSvg(chart, /*standalone=*/true);
  std::vector<double> places;
  for (size_t at = svg.find("cx=\""); at != std::string::npos; at = svg.find("cx=\"", at + 1))
    places.push_back(std::stod(svg.substr(at + 4)));
  return places;
}

TEST(DrawLines, WhiskersAtOneXStandSideBySide) {
  LineChart chart = Lines();
  chart.series = {{"a", {1, 5}, {5, 5}, -1, {1, 1}},
                  {"without", {1, 5}, {5, 5}, -1},
                  {"b", {1, 5}, {5, 5}, -1, {1, 1}}};
  std::vector<double> places = WhiskerPlaces(chart);
  ASSERT_EQ(places.size(), 4u);
  EXPECT_NEAR(places[2] - places[0], 6, 0.11);
  EXPECT_NEAR(places[3] - places[1], 6, 0.11);
  // The line goes with its whiskers.
  EXPECT_TRUE(Contains(DrawSvg(chart, true), fmt::format("\"M{:.1f} ", places[2])));
  // Where the next x is near, both lines stay on their side of it.
  chart.series[0].x = chart.series[2].x = {1, 1.02};
  places = WhiskerPlaces(chart);
  EXPECT_LT(places[2], places[1]);
  EXPECT_GT(places[2], places[0]);
  // Many lines stay inside the plot.
  chart.series.assign(20, {"a", {1, 5}, {5, 5}, -1, {1, 1}});
  for (const double place : WhiskerPlaces(chart)) {
    EXPECT_GT(place, kLeft + 2.5);
    EXPECT_LT(place, kChartWidth - kRight - 2.5);
  }
}

TEST(DrawLines, AWhiskerBelowZeroOnALogarithmicScaleHidesNoPoint) {
  LineChart chart = Lines();
  chart.log_y = true;
  chart.series[0] = {"a", {1, 2}, {1, 100}, -1, {2, 0}};
  const std::string svg = DrawSvg(chart, /*standalone=*/true);
  const size_t dot = svg.find("cy=\"");
  ASSERT_NE(dot, std::string::npos);
  EXPECT_LT(std::stod(svg.substr(dot + 4)), PlotTop(true) + kPlotHeight);
}

TEST(DrawLines, TicksAtThePoints) {
  LineChart chart = Lines();
  chart.series[0] = {"cost", {12, kNone, 48, 24}, {5, 5, 6, 6}, -1};
  chart.series.push_back({"cost", {12, 96}, {5, 5}, -1});
  EXPECT_FALSE(Contains(DrawSvg(chart, true), ">12</text>"));
  chart.ticks_at_points = true;
  const std::string svg = DrawSvg(chart, true);
  for (const char* tick : {">12<", ">24<", ">48<", ">96<"}) EXPECT_EQ(Occurrences(svg, tick), 1);
  // A point that a logarithmic scale cannot show has no tick either.
  chart.log_y = true;
  chart.series[1].y[1] = 0;
  EXPECT_FALSE(Contains(DrawSvg(chart, true), ">96<"));
}

TEST(DrawLines, APointAloneIsADot) {
  LineChart chart = Lines();
  chart.series[0] = {"one", {1}, {1}, -1};
  EXPECT_TRUE(Contains(DrawSvg(chart, false), "h.1\""));
}

TEST(DrawLines, NothingBelowZeroOnALogarithmicScale) {
  LineChart chart = Lines();
  chart.log_y = true;
  const std::string svg = DrawSvg(chart, false);
  EXPECT_FALSE(Contains(svg, "nan"));
  EXPECT_FALSE(Contains(svg, "inf"));
}

TEST(DrawLines, ColorsAreKeptAndDashedAfterEight) {
  LineChart chart = Lines();
  chart.series[0].color = 5;
  EXPECT_TRUE(Contains(DrawSvg(chart, false), "class=\"line k5\""));
  EXPECT_EQ(ChartLegend(chart)[0].color, 5u);
  EXPECT_EQ(SeriesClass(0), "k0");
  EXPECT_EQ(SeriesClass(9), "k1 dash1");
  EXPECT_EQ(SeriesClass(17), "k1 dash2");
}

HeatMap Heat() {
  HeatMap map{"heat", "title", "description", "x", "y", "row", "column", {}, {}};
  map.values = {{kNone, kNone}, {0.5, -1}, {kNone, 0.25}};
  return map;
}

TEST(DrawHeatMap, ACellForEachValue) {
  for (bool standalone : {false, true}) {
    const std::string svg = DrawSvg(Heat(), standalone);
    const std::string cells = svg.substr(svg.find("class=\"cells\""),
                                         svg.find("class=\"scale\"") - svg.find("class=\"cells\""));
    EXPECT_EQ(Occurrences(cells, standalone ? "<rect" : "z"), 3);
    EXPECT_EQ(Occurrences(cells, "class=\"neg\""), 1);
    EXPECT_EQ(Occurrences(cells, "fill-opacity=\".50\""), 1);
    EXPECT_EQ(Occurrences(cells, "fill-opacity=\"1\""), 1);
  }
  const std::string page = DrawSvg(Heat(), false);
  EXPECT_TRUE(Contains(page, "data-rows=\"1,2\""));  // the first row has no cells
  EXPECT_TRUE(Contains(page, "data-values=\"0.5,-1;,0.25\""));
}

TEST(DrawHeatMap, ManyCellsAreFewElements) {
  HeatMap map = Heat();
  map.values.assign(60, std::vector<double>(60));
  for (int i = 0; i < 3600; ++i) map.values[i / 60][i % 60] = std::sin(i);
  const std::string svg = DrawSvg(map, false);
  const std::string cells = svg.substr(0, svg.find("class=\"scale\""));
  EXPECT_EQ(Occurrences(cells, "v6") + Occurrences(cells, "v5"), 3600);
  EXPECT_LE(Occurrences(cells, "<path"), 82);
}

TEST(DrawHeatMap, ValuesAndErrorsAsText) {
  HeatMap map = Heat();
  map.errors = {{}, {0.1, kNone}, {kNone, kNone}};
  const std::string svg = DrawSvg(map, /*standalone=*/true);
  EXPECT_TRUE(Contains(svg, "<title>row 1, column 0: 0.5 ± 0.1</title>"));
  EXPECT_TRUE(Contains(svg, "<title>row 1, column 1: -1</title>"));
  EXPECT_TRUE(Contains(DrawSvg(map, false), "data-errors=\"0.1,;,\""));
}

TEST(DrawHeatMap, ColorsEndAtTheLimit) {
  HeatMap map = Heat();
  map.limit = 0.25;
  const std::string svg = DrawSvg(map, false);
  EXPECT_FALSE(Contains(svg, "fill-opacity=\".50\" />"));
  EXPECT_TRUE(Contains(svg, "≥ 0.25"));
  EXPECT_TRUE(Contains(svg, "≤ -0.25"));
  map.limit = 0;
  EXPECT_FALSE(Contains(DrawSvg(map, false), "≥"));
  map.diverging = false;
  EXPECT_FALSE(Contains(DrawSvg(map, false), ">-1<"));
}

TEST(DrawScatter, LabelsDoNotMeet) {
  ScatterChart chart{"s", "t", "d", "x", "y", {}};
  for (int n = 0; n < 3; ++n) chart.points.push_back({1.0 + 0.01 * n, 1, "label", "g", "run"});
  chart.points.push_back({2, 2, "label", "g", "run"});
  const std::string svg = DrawSvg(chart, false);
  std::vector<std::string> places;
  for (size_t at = svg.find("data-tip"); at != std::string::npos;
       at = svg.find("data-tip", at + 1)) {
    const size_t text = svg.find("<text", at);
    places.push_back(svg.substr(text, svg.find('>', text) - text));
  }
  ASSERT_EQ(places.size(), 4u);
  EXPECT_NE(places[0], places[1]);
  EXPECT_NE(places[1], places[2]);
}

TEST(DrawScatter, PointsInOnePlaceHaveNoMoreLabelsThanRoom) {
  ScatterChart chart{"s", "t", "d", "x", "y", {}};
  for (int n = 0; n < 9; ++n) chart.points.push_back({1, 1, "label", "g", "run"});
  const std::string svg = DrawSvg(chart, false);
  EXPECT_EQ(Occurrences(svg, "<circle"), 9);
  EXPECT_EQ(Occurrences(svg, ">label<"), 4);
}

TEST(DrawScatter, ALineJoinsTheDepthsOfAGroup) {
  ScatterChart chart{"s", "t", "d", "x", "y", {{1, 1, "24", "a", ""}, {2, 2, "48", "a", ""}}};
  EXPECT_TRUE(Contains(DrawSvg(chart, false), "line thin"));
  chart.points[1].label = "24";  // two seeds
  EXPECT_FALSE(Contains(DrawSvg(chart, false), "line thin"));
}

TEST(DrawBars, LengthsAreInProportion) {
  const BarChart chart{"b", "t", "d", "ms", {{"one", 1}, {"four", 4}, {"none", kNone}}};
  const std::string svg = DrawSvg(chart, false);
  std::vector<double> widths;
  for (size_t at = svg.find("class=\"bar\""); at != std::string::npos;
       at = svg.find("class=\"bar\"", at + 1)) {
    const size_t width = svg.find("width=\"", at) + 7;
    widths.push_back(std::stod(svg.substr(width)));
  }
  ASSERT_EQ(widths.size(), 3u);
  EXPECT_NEAR(widths[1], 4 * widths[0], 0.5);
  EXPECT_EQ(widths[2], 0);
}

TEST(DrawSvg, IsWellFormedWhateverTheTextsAndNumbers) {
  const double inf = std::numeric_limits<double>::infinity();
  std::vector<Chart> charts;
  LineChart lines{kHostile, kHostile, kHostile, kHostile, kHostile, {}, false};
  charts.push_back(lines);  // no series at all
  lines.series = {{kHostile, {}, {}, -1}, {kHostile, {0, 1}, {inf, -1e300}, 20}};
  charts.push_back(lines);
  lines.log_y = true;
  charts.push_back(lines);
  lines.ticks_at_points = true;
  lines.series[1] = {kHostile, {0, inf, 1, kNone}, {1, 2, 3}, 20, {inf, 1e300, 1e300, -1, 5, 6}};
  charts.push_back(lines);
  lines.log_y = false;
  charts.push_back(lines);
  HeatMap heat{kHostile, kHostile, kHostile, kHostile, kHostile, kHostile, kHostile, {}, {}};
  charts.push_back(heat);
  heat.values = {{0, 1e300}, {kNone}, {inf, -1, 3}};
  heat.errors = {{1}};
  charts.push_back(heat);
  heat.values.assign(50, std::vector<double>(50, 0));
  charts.push_back(heat);
  ScatterChart scatter{kHostile, kHostile, kHostile, kHostile, kHostile, {}};
  charts.push_back(scatter);
  scatter.points = {{1, 2, kHostile, kHostile, kHostile}, {kNone, inf, kHostile, "g", ""}};
  charts.push_back(scatter);
  charts.push_back(BarChart{kHostile, kHostile, kHostile, kHostile, {}});
  charts.push_back(BarChart{kHostile, kHostile, kHostile, kHostile, {{kHostile, -1}}});
  for (const Chart& chart : charts) {
    for (bool standalone : {false, true}) {
      const std::string svg = DrawSvg(chart, standalone);
      EXPECT_EQ(XmlProblem(svg), "") << svg.substr(0, 2000);
      EXPECT_FALSE(Contains(svg, "<script"));
      EXPECT_FALSE(Contains(svg, "=\"nan")) << svg;
    }
  }
}

}  // namespace
}  // namespace denseformer
