#include "analysis/report.h"

#include <cmath>

#include "analysis/report_curves.h"
#include "analysis/study.h"
#include "analysis/testing.h"

namespace denseformer {
namespace {

constexpr const char* kHostile = "<script>alert(1)</script>\"'&";

class ReportTest : public TrainedRunTest {
 protected:
  // With all studies.
  RunData Full(const std::string& path) const {
    RunData run = ReadRun(path);
    for (const Study* study : Studies()) {
      if (study->available(run)) run.studies[study->name] = study->run(run, {});
    }
    return run;
  }
};

std::string Body(const std::string& html) {
  const size_t begin = html.find("<main>"), end = html.find("</main>");
  return html.substr(begin, end + 7 - begin);
}

const LineChart& Find(const std::vector<Chart>& charts, const std::string& id) {
  for (const Chart& chart : charts) {
    if (ChartId(chart) == id) return std::get<LineChart>(chart);
  }
  throw std::out_of_range(id);
}

TEST_F(ReportTest, HasAllSectionsAndAsksForNothing) {
  ReportInput input;
  input.runs = {Full(TrainRun("plain", "none")), Full(TrainRun("dense", "1x1")),
                Full(TrainRun("mixed", "1x1", 1, 4, 2, "dynamic", "rv"))};
  input.samples = {{"plain", "Once", " upon a time"}};
  const std::string html = MakeReport(input);
  for (const char* id : {"runs", "curves", "tradeoffs", "weights", "evolution", "sources", "mixing",
                         "cosine", "pruning", "spectra", "samples", "configuration"}) {
    EXPECT_EQ(Occurrences(html, fmt::format("<h2 id=\"{}\">", id)), 1) << id;
    EXPECT_EQ(Occurrences(html, fmt::format("href=\"#{}\"", id)), 1) << id;
  }
  EXPECT_EQ(XmlProblem(Body(html)), "");
  EXPECT_FALSE(Contains(html, "src="));
  EXPECT_FALSE(Contains(html, "@import"));
  EXPECT_FALSE(Contains(html, "url(http"));
  EXPECT_EQ(Occurrences(html, "href=\""), Occurrences(html, "href=\"#"));
  EXPECT_TRUE(Contains(html, "<b>Once</b> upon a time"));
  // Every drawing has a text for those who do not see it.
  EXPECT_EQ(Occurrences(html, "<svg class=\"chart"),
            Occurrences(html, "role=\"img\" aria-label=\""));
}

TEST_F(ReportTest, HostileTextIsShownNotRun) {
  ReportInput input;
  RunData run = Full(TrainRun("run", "1x1"));
  run.name = kHostile;
  run.options = std::string("[a]\nkey = ") + kHostile + "\n";
  input.runs = {run, Full(TrainRun("other", "1x1", 2))};
  input.samples = {{kHostile, kHostile, kHostile}};
  const std::string html = MakeReport(input);
  EXPECT_EQ(Occurrences(html, "<script"), 1);
  EXPECT_FALSE(Contains(html, "<script>alert"));
  EXPECT_EQ(XmlProblem(Body(html)), "");
  for (const Chart& chart : ReportCharts(input)) {
    EXPECT_EQ(XmlProblem(DrawSvg(chart, true)), "");
    EXPECT_EQ(ChartId(chart).find_first_of("<>\"'&/ "), std::string::npos);
  }
}

TEST_F(ReportTest, TableShowsWhatIsThere) {
  std::vector<RunData> runs = {ReadRun(TrainRun("a", "none")), ReadRun(TrainRun("b", "1x1"))};
  runs[0].summary["validation"] = {{"loss", 2.5}, {"perplexity", 12.1825}, {"accuracy", 0.25}};
  runs[1].summary["validation"] = {{"loss", 2.25}, {"perplexity", 9.4877}, {"accuracy", 0.5}};
  std::string html = ReportTableHtml(runs);
  EXPECT_TRUE(Contains(html, "<td>2.5000</td><td>12.18</td><td>25.00 %</td>"));
  EXPECT_TRUE(Contains(html,
                       "<td class=\"best\">2.2500</td><td class=\"best\">9.49</td>"
                       "<td class=\"best\">50.00 %</td>"));
  EXPECT_FALSE(Contains(html, "Bits per byte"));  // no run has it
  EXPECT_EQ(ReportSentences(runs),
            std::vector<std::string>{"b has the lowest validation perplexity, 9.49: 22.12 % below "
                                     "the 12.18 of a."});
  runs[1].summary["validation"]["loss"] = "x";
  EXPECT_TRUE(Contains(ErrorOf([&] { ReportTableHtml(runs); }),
                       "b/summary.json: loss is \"x\", expected a number; the file is damaged"));
  runs[1].summary["validation"] = 3;
  EXPECT_TRUE(Contains(ErrorOf([&] { ReportTableHtml(runs); }),
                       "b/summary.json: validation is 3, expected an object; the file is damaged"));
  runs[1].summary = nlohmann::ordered_json();  // not finished
  runs[1].validation_loss = {{2, 4}, {}, {}, {3, 2.75}};
  runs[1].train_loss = {{5}, {160}, {12}, {3}};
  runs[1].throughput = {{2, 5}, {}, {}, {100, 300}};
  html = ReportTableHtml(runs);
  EXPECT_FALSE(Contains(html, "class=\"best\""));
  EXPECT_TRUE(Contains(html,
                       "<td>2.7500*</td><td>15.64*</td><td>–</td><td>65,838</td><td>14</td>"
                       "<td>5</td><td>160</td><td>150</td><td>0:12</td>"))
      << html;
  EXPECT_TRUE(Contains(html, "the whole stream has not been evaluated"));
  const std::string csv = ReportCsv(runs);
  EXPECT_TRUE(
      Contains(csv, "run,model,validation_loss,perplexity,accuracy,bits_per_byte,parameters,"));
  EXPECT_TRUE(Contains(csv, "\"b\",\"4 blocks, 1x1\",,,,,65838,14,5,160,150,12\n")) << csv;
  EXPECT_TRUE(Contains(csv, "\"a\",\"4 blocks, Transformer\",2.5,12.1825,0.25,,"));
}

TEST_F(ReportTest, RunsWithNothingRecorded) {
  ReportInput input;
  RunData run;
  run.name = "bare";
  run.config = ModelConfig::Preset("test");
  input.runs = {run};
  const std::string html = MakeReport(input);
  EXPECT_FALSE(Contains(html, "id=\"curves\""));
  EXPECT_FALSE(Contains(html, "id=\"weights\""));
  EXPECT_TRUE(Contains(html, "The run does not hold its options."));
  EXPECT_EQ(XmlProblem(Body(html)), "");
  EXPECT_TRUE(ReportCharts(input).empty());
}

RunData WithCurve(const std::string& name, const std::vector<double>& step,
                  const std::vector<double>& loss) {
  RunData run;
  run.name = name;
  run.config = ModelConfig::Preset("test");
  run.validation_loss = {step, step, step, loss};
  return run;
}

TEST(ReportCharts, DifferencesToTheFirstRun) {
  ReportInput input;
  input.runs = {WithCurve("a", {10, 20, 30}, {5, 4, 2}),
                WithCurve("b", {5, 10, 25, 40}, {9, 4.5, 3.5, 1})};
  const LineChart chart = Find(ReportCharts(input), "difference-steps");
  ASSERT_EQ(chart.series.size(), 2u);
  EXPECT_EQ(chart.series[0].y, (std::vector<double>{0, 0, 0}));
  // Step 5 is before, 40 after the first run; at 25 it is half way between 4 and 2.
  EXPECT_EQ(chart.series[1].x, (std::vector<double>{10, 25}));
  EXPECT_EQ(chart.series[1].y, (std::vector<double>{-0.5, 0.5}));
}

TEST(ReportCharts, LongCurvesBecomeMeansThatSaySo) {
  RunData run = WithCurve("a", {}, {});
  for (int i = 1; i <= 7000; ++i) {
    run.train_loss.step.push_back(i);
    run.train_loss.tokens.push_back(i);
    run.train_loss.seconds.push_back(i);
    run.train_loss.value.push_back(i == 3500 ? NAN : i % 2);
  }
  ReportInput input;
  input.runs = {run};
  const Series series = Find(ReportCharts(input), "train-steps").series[0];
  // What the page stores, for zooming in: 1..7, four of them odd.
  ASSERT_EQ(series.x.size(), 1000u);
  EXPECT_DOUBLE_EQ(series.x[0], 4);
  EXPECT_DOUBLE_EQ(series.y[0], 4.0 / 7.0);
  EXPECT_EQ(series.counts[0], 7);
  EXPECT_EQ(series.counts[499], 6);  // one of them is not finite
  for (double y : series.y) EXPECT_TRUE(std::isfinite(y));
  // What it draws first.
  const Series drawn = Averaged(series, 150);
  ASSERT_EQ(drawn.x.size(), 143u);
  EXPECT_DOUBLE_EQ(drawn.x[0], 25);  // 1..49
  EXPECT_EQ(drawn.counts[0], 49);
  const std::string html = MakeReport(input);
  EXPECT_TRUE(Contains(html, "data-count-word=\"logged steps\""));
  EXPECT_TRUE(Contains(html, "data-counts=\"7,7,7,"));
}

TEST(ReportCharts, SeedsOfOneConfigurationBecomeABand) {
  ReportInput input;
  input.runs = {WithCurve("a", {10, 20}, {5, 4}), WithCurve("b", {10, 30}, {3, 5}),
                WithCurve("c", {10, 20}, {1, 1})};
  input.runs[0].options = "[model]\ndwa = \"4x5\"\n[train]\nseed = 1\n";
  input.runs[1].options = "[model]\ndwa = \"4x5\"\n[train]\nseed = 2\n";
  input.runs[2].options = "[model]\ndwa = \"none\"\n[train]\nseed = 2\n";
  EXPECT_EQ(SeedGroups(input.runs), (std::vector<std::vector<size_t>>{{0, 1}}));
  const LineChart chart = Find(ReportCharts(input), "validation-steps");
  ASSERT_EQ(chart.series.size(), 4u);
  EXPECT_EQ(chart.series[0].group, 0);
  EXPECT_EQ(chart.series[1].group, 0);
  EXPECT_EQ(chart.series[2].group, -1);
  const Series& band = chart.series[3];
  EXPECT_TRUE(Contains(band.name, "mean of 2 seeds"));
  EXPECT_EQ(band.color, 0);
  EXPECT_EQ(band.y, (std::vector<double>{4, 4}));  // b is at 4 half way from 3 to 5
  EXPECT_EQ(band.low, (std::vector<double>{3, 4}));
  EXPECT_EQ(band.high, (std::vector<double>{5, 4}));
  const std::string html = MakeReport(input);
  EXPECT_TRUE(Contains(html, "seeds as bands"));
  EXPECT_TRUE(Contains(html, "class=\"band k0 mean\""));
  EXPECT_TRUE(Contains(html, "class=\"line k1 member\""));
  input.runs[1].options += "extra = 1\n";
  EXPECT_FALSE(Contains(MakeReport(input), "seeds as bands"));
}

TEST(ReportCharts, RateGradientAndThroughput) {
  RunData run = WithCurve("a", {}, {});
  for (Curve* curve : {&run.learning_rate, &run.gradient_norm, &run.throughput})
    *curve = {{1, 2}, {8, 16}, {1, 2}, {0.5, 0.25}};
  ReportInput input;
  input.runs = {run};
  const std::vector<Chart> charts = ReportCharts(input);
  for (const char* id : {"rate-steps", "gradient-tokens", "throughput-time"})
    EXPECT_EQ(Find(charts, id).series[0].y, (std::vector<double>{0.5, 0.25})) << id;
}

TEST_F(ReportTest, SeedsAlsoGetTheMeanOfTheirWeights) {
  ReportInput input;
  input.runs = {Full(TrainRun("s1", "1x1", 1)), Full(TrainRun("s2", "1x1", 2)),
                Full(TrainRun("other", "2x1"))};
  std::vector<std::string> titles;
  for (const Chart& chart : ReportCharts(input)) {
    if (ChartTitle(chart).starts_with("Depth weights")) titles.push_back(ChartTitle(chart));
  }
  EXPECT_EQ(titles, (std::vector<std::string>{"Depth weights: s1", "Depth weights: s2",
                                              "Depth weights: other",
                                              "Depth weights: 4 blocks, 1x1, mean of 2 runs"}));
}

TEST_F(ReportTest, OneLegendForAllCharts) {
  ReportInput input;
  input.runs = {Full(TrainRun("plain", "none")), Full(TrainRun("dense", "1x1"))};
  const std::string html = MakeReport(input);
  EXPECT_EQ(Occurrences(html, "class=\"legend runs\""), 1);
  EXPECT_EQ(Occurrences(html, "data-run=\""), 2);
  // Charts of runs have none of their own; those of the sources of a module do.
  const std::vector<Chart> charts = ReportCharts(input);
  int own = 0;
  for (const Chart& chart : charts) {
    if (const auto* lines = std::get_if<LineChart>(&chart)) own += !lines->shared_legend;
  }
  EXPECT_GT(own, 0);
  EXPECT_EQ(Occurrences(html, "class=\"legend\""), own);
  // Points take the color of their run, and say what they are.
  for (const Chart& chart : charts) {
    if (ChartId(chart) != "perplexity-time") continue;
    EXPECT_EQ(std::get<ScatterChart>(chart).points[1].color, 1);
    EXPECT_EQ(std::get<ScatterChart>(chart).points[1].label, "4 blocks, 1x1");
  }
}

TEST_F(ReportTest, APageOfRunsThatGoOnReloadsItself) {
  ReportInput input;
  input.runs = {ReadRun(TrainRun("run", "none"))};
  EXPECT_FALSE(Contains(MakeReport(input), "data-refresh="));
  input.refresh = 7;
  EXPECT_TRUE(Contains(MakeReport(input), "<html lang=\"en\" data-refresh=\"7\">"));
}

TEST_F(ReportTest, ARunKeepsItsColor) {
  ReportInput input;
  input.runs = {Full(TrainRun("plain", "none")), Full(TrainRun("dense", "1x1"))};
  const std::vector<Chart> charts = ReportCharts(input);
  EXPECT_EQ(ChartLegend(Find(charts, "pruning"))[0].name, "dense");
  EXPECT_EQ(ChartLegend(Find(charts, "pruning"))[0].color, 1u);
  EXPECT_EQ(ChartLegend(Find(charts, "cosine"))[1].color, 1u);
}

TEST(ReportOptions, ShowsWhereRunsDiffer) {
  RunData a = WithCurve("a", {}, {}), b = WithCurve("b", {}, {});
  a.options = "[model]\ndwa = \"none\"\nn_layer = 4\n[train]\nseed = 1\n# note\n";
  b.options = "[model]\ndwa = \"1x1\"\nn_layer = 4\n[train]\nseed = 1\nextra = 2\n";
  const std::string html = ReportOptionsHtml({a, b});
  EXPECT_TRUE(Contains(html, "model.dwa</th><td>&quot;none&quot;</td><td>&quot;1x1&quot;</td>"));
  EXPECT_TRUE(Contains(html, "train.extra</th><td>–</td><td>2</td>"));
  EXPECT_FALSE(Contains(html, "model.n_layer</th>"));
  EXPECT_FALSE(Contains(ReportOptionsHtml({a}), "<table>"));
}

}  // namespace
}  // namespace denseformer
