// The schedule against PyTorch's OneCycleLR (testdata/one_cycle.py made the table).
#include "train/schedule.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/testing.h"
#include "base/text.h"

namespace denseformer {
namespace {

TEST(ScheduleTest, EqualsOneCycleOfPyTorch) {
  const std::string table = ReadFile(SourceDirectory() + "/src/train/testdata/one_cycle.tsv");
  int rows = 0;
  for (const std::string& line : Split(table, '\n')) {
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string> cells = Split(line, '\t');
    ASSERT_EQ(cells.size(), 8u) << line;
    Schedule schedule;
    schedule.shape = cells[0] == "cos" ? ScheduleShape::kCosine : ScheduleShape::kLinear;
    schedule.steps = std::stoll(cells[1]);
    schedule.warmup = std::stod(cells[2]);
    schedule.peak = std::stod(cells[3]);
    schedule.start_share = std::stod(cells[4]);
    schedule.end_share = std::stod(cells[5]);
    const double expected = std::stod(cells[7]);
    EXPECT_NEAR(schedule.Rate(std::stoll(cells[6])), expected, 1e-12 * expected) << line;
    ++rows;
  }
  EXPECT_GT(rows, 100);
}

TEST(ScheduleTest, RecipeOfThePaper) {
  Schedule schedule;
  schedule.steps = 40000;
  EXPECT_NEAR(schedule.Rate(0), 1e-5, 1e-17);
  EXPECT_DOUBLE_EQ(schedule.Rate(1999), 1e-3);
  EXPECT_DOUBLE_EQ(schedule.Rate(39999), 1e-4);
}

TEST(ScheduleTest, ConstantKeepsThePeakAfterTheWarmUp) {
  Schedule schedule;
  schedule.shape = ScheduleShape::kConstant;
  schedule.steps = 100;
  EXPECT_NEAR(schedule.Rate(0), 1e-5, 1e-17);
  for (int step = 4; step < 100; ++step) EXPECT_DOUBLE_EQ(schedule.Rate(step), 1e-3);
  schedule.warmup = 0;
  EXPECT_DOUBLE_EQ(schedule.Rate(0), 1e-3);
}

TEST(ScheduleTest, OneStepAndWarmUpOfOneStep) {
  Schedule schedule;
  schedule.steps = 1;
  EXPECT_DOUBLE_EQ(schedule.Rate(0), 1e-4);
  schedule.steps = 20;  // the warm-up ends where it begins
  EXPECT_DOUBLE_EQ(schedule.Rate(0), 1e-3);
  EXPECT_DOUBLE_EQ(schedule.Rate(19), 1e-4);
}

TEST(ScheduleTest, Names) {
  EXPECT_EQ(ParseSchedule("linear"), ScheduleShape::kLinear);
  EXPECT_EQ(ErrorOf([] { ParseSchedule("cosin"); }),
            "schedule: got 'cosin', expected one of cosine, linear, constant (did you mean "
            "'cosine'?)");
}

}  // namespace
}  // namespace denseformer
