#include "perf/bench_table.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace denseformer {
namespace {

BenchTable SlowAndFast() {
  BenchTable table = MakeTable("passes", {{"slow", {20, 25, 40}}, {"fast", {0.1, 0.2, 0.4}}},
                               /*work=*/1, "batches");
  table.rows[0].baseline = 1;
  table.rows[0].limit = 1;
  return table;
}

// A pass of 25 s makes 0.04 batches/s, not 0.
TEST(BenchTableTest, RatesBelowOneKeepTheirDigits) {
  const std::string text = SlowAndFast().ToText();
  EXPECT_NE(text.find(" 0.04 batches/s"), std::string::npos) << text;
  EXPECT_NE(text.find(" 5 batches/s"), std::string::npos) << text;
}

TEST(BenchTableTest, RatiosAndShares) {
  const nlohmann::json row = SlowAndFast().ToJson()["rows"][0];
  EXPECT_DOUBLE_EQ(row["batches_per_second"].get<double>(), 0.04);
  EXPECT_DOUBLE_EQ(row["ratio_of_medians"].get<double>(), 125);
  EXPECT_DOUBLE_EQ(row["ratio_of_minima"].get<double>(), 200);
  EXPECT_DOUBLE_EQ(row["share_of_limit"].get<double>(), 0.008);
  EXPECT_DOUBLE_EQ(row["share_of_limit_minima"].get<double>(), 0.005);
}

}  // namespace
}  // namespace denseformer
