// Charts of made-up runs and benchmarks: what is on their axes, and how uncertain it is.
#include "sweep/charts.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/testing.h"
#include "sweep/document.h"
#include "sweep/testing.h"

namespace denseformer {
namespace {

using Json = nlohmann::ordered_json;

Json BenchRow(const char* pattern, double seconds, double ratio, double error) {
  return {{"name", pattern},     {"pattern", pattern},        {"blocks", 2},
          {"baseline", "none"},  {"median_seconds", seconds}, {"ratio_of_medians", ratio},
          {"ratio_error", error}};
}

class SweepChartsTest : public testing::Test {
 protected:
  SweepChartsTest() : ledger_(scratch_ / "ledger.jsonl") {
    const int width = file_.rows[0].OptionsOf(1).model.n_embd;
    bench_ = {{"title", "whole training step"},
              {"settings", {{"width", std::to_string(width)}}},
              {"rows", {BenchRow("none", 0.5, 1, 0), BenchRow("1x1", 0.625, 1.25, 0.05)}}};
    for (const SweepRow& row : file_.rows) {
      for (const int64_t seed : row.seeds) {
        LedgerJson line = LedgerRow(row, seed, 2 + 0.1 * static_cast<double>(seed));
        line["parameters"] = 1234;
        line["curve"] = {{"step", {0, 10}}, {"loss", {3.0, 2.0 + 0.1 * static_cast<double>(seed)}}};
        std::vector<double> cosines(30, 0.1 * static_cast<double>(seed));
        line["studies"] = {{"cosine", {{"cosine", cosines}}}};
        ledger_.Append(line);
      }
    }
  }
  LineChart Find(const std::string& id) const {
    for (const Chart& chart : SweepCharts(Summarize(file_, ledger_), {bench_})) {
      if (ChartId(chart) == id) return std::get<LineChart>(chart);
    }
    ADD_FAILURE() << "no chart " << id;
    return {};
  }

  const TemporaryDirectory scratch_;
  const SweepFile file_ = ParseSweepFile(R"(data = "d"
seeds = [1, 2]
baseline = "none"
options = { preset = "test", n_layer = 2 }
row = [{ name = "none", options = { dwa = "none", lr = 0.001 } },
  { name = "1x1", options = { dwa = "1x1", lr = 0.002 } },
  { name = "2x1", options = { dwa = "2x1", lr = 0.002 } }]
chart = [{ kind = "time" }, { kind = "curves" }, { kind = "speed", x = "dilation" },
  { kind = "option", x = "lr" }, { kind = "cosine" }]
)",
                                         "part.toml", "");
  Ledger ledger_;
  Json bench_;
};

TEST_F(SweepChartsTest, TimeIsStepsAtTheMeasuredSpeed) {
  const LineChart time = Find("part-time"), curves = Find("part-curves");
  ASSERT_EQ(time.series.size(), 2u);  // no speed for 2x1
  EXPECT_EQ(curves.series.size(), 3u);
  EXPECT_EQ(time.series[0].x, (std::vector<double>{0, 5}));
  EXPECT_EQ(time.series[1].x, (std::vector<double>{0, 6.25}));
  EXPECT_EQ(curves.series[1].x, (std::vector<double>{0, 10}));
  EXPECT_EQ(time.series[1].y, curves.series[1].y);
  EXPECT_NEAR(time.series[1].low[1], 2.1, 1e-12);
  EXPECT_NEAR(time.series[1].high[1], 2.2, 1e-12);
}

TEST_F(SweepChartsTest, SpeedIsRelativeToTheTransformer) {
  const LineChart speed = Find("part-speed");
  ASSERT_EQ(speed.series.size(), 1u);  // no benchmark of inference
  EXPECT_EQ(speed.series[0].name, "training");
  EXPECT_EQ(speed.series[0].x, (std::vector<double>{1}));
  EXPECT_DOUBLE_EQ(speed.series[0].y[0], 0.8);
  EXPECT_DOUBLE_EQ(speed.series[0].errors[0], 0.032);
}

TEST_F(SweepChartsTest, RatesAreLogarithmic) { EXPECT_TRUE(Find("part-option").log_x); }

TEST_F(SweepChartsTest, LongStudiesHaveBands) {
  const LineChart cosine = Find("part-cosine-1");
  ASSERT_EQ(cosine.series[0].low.size(), 30u);
  EXPECT_NEAR(cosine.series[0].low[7], 0.1, 1e-12);
  EXPECT_NEAR(cosine.series[0].high[7], 0.2, 1e-12);
}

TEST_F(SweepChartsTest, TablesShowWhatIsNoiseInASpeed) {
  const TextTable table = ResultTable(Summarize(file_, ledger_), {bench_});
  const auto cell = [&](size_t row, const std::string& header) {
    const auto at = std::find(table.headers.begin(), table.headers.end(), header);
    return at == table.headers.end()
               ? "no column"
               : table.rows[row][static_cast<size_t>(at - table.headers.begin())];
  };
  EXPECT_EQ(cell(0, "training cost, %"), "");
  EXPECT_EQ(cell(1, "training cost, %"), "25.0 ± 5.0");
  EXPECT_EQ(cell(1, "training steps/s"), "1.6");
  EXPECT_EQ(cell(2, "training steps/s"), "");
  EXPECT_EQ(cell(1, "parameters"), "1234");
}

}  // namespace
}  // namespace denseformer
