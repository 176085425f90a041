#include "sweep/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace denseformer {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// The constants are those of printed tables of Student's distribution.
TEST(Statistics, StudentQuantile) {
  EXPECT_NEAR(StudentQuantile(0.05, 1), 12.7062, 1e-4);
  EXPECT_NEAR(StudentQuantile(0.05, 2), 4.3027, 1e-4);
  EXPECT_NEAR(StudentQuantile(0.05, 10), 2.2281, 1e-4);
  EXPECT_NEAR(StudentQuantile(0.01, 30), 2.7500, 1e-4);
  EXPECT_TRUE(std::isnan(StudentQuantile(0.05, 0)));
}

TEST(Statistics, StudentTwoSided) {
  EXPECT_NEAR(StudentTwoSided(4.302653, 2), 0.05, 1e-6);
  EXPECT_DOUBLE_EQ(StudentTwoSided(-1, 3), StudentTwoSided(1, 3));
  EXPECT_DOUBLE_EQ(StudentTwoSided(0, 3), 1);
  EXPECT_DOUBLE_EQ(StudentTwoSided(std::numeric_limits<double>::infinity(), 3), 0);
}

TEST(Statistics, HolmStepsDownAndKeepsTheOrder) {
  // Sorted: 0.01 x 4, 0.02 x 3, 0.03 x 2, 0.5 x 1.
  const std::vector<double> adjusted = HolmAdjusted({0.5, 0.01, 0.03, 0.02});
  ASSERT_EQ(adjusted.size(), 4u);
  EXPECT_DOUBLE_EQ(adjusted[0], 0.5);
  EXPECT_DOUBLE_EQ(adjusted[1], 0.04);
  EXPECT_DOUBLE_EQ(adjusted[2], 0.06);
  EXPECT_DOUBLE_EQ(adjusted[3], 0.06);
}

TEST(Statistics, HolmGivesTiesTheSameAndNeverMoreThanOne) {
  const std::vector<double> adjusted = HolmAdjusted({0.02, 0.6, 0.02, 0.6});
  EXPECT_DOUBLE_EQ(adjusted[0], 0.08);
  EXPECT_DOUBLE_EQ(adjusted[2], 0.08);
  EXPECT_DOUBLE_EQ(adjusted[1], 1);
  EXPECT_DOUBLE_EQ(adjusted[3], 1);
}

TEST(Statistics, HolmIsMonotonic) {
  // 0.02 x 3 = 0.06, 0.021 x 2 = 0.042: the second is raised to the first.
  const std::vector<double> adjusted = HolmAdjusted({0.02, 0.021, 0.9});
  EXPECT_DOUBLE_EQ(adjusted[0], 0.06);
  EXPECT_DOUBLE_EQ(adjusted[1], 0.06);
  EXPECT_DOUBLE_EQ(adjusted[2], 0.9);
}

TEST(Statistics, HolmDoesNotCountWhatWasNotTested) {
  const std::vector<double> adjusted = HolmAdjusted({kNone, 0.02, kNone, 0.04});
  EXPECT_TRUE(std::isnan(adjusted[0]));
  EXPECT_TRUE(std::isnan(adjusted[2]));
  EXPECT_DOUBLE_EQ(adjusted[1], 0.04);
  EXPECT_DOUBLE_EQ(adjusted[3], 0.04);
  EXPECT_TRUE(HolmAdjusted({}).empty());
}

TEST(Statistics, EqualPairsAreCertain) {
  EXPECT_DOUBLE_EQ(ComparePairs({1, 2, 3}, {1, 2, 3}).p, 1);
  EXPECT_DOUBLE_EQ(ComparePairs({1, 2, 3}, {0.5, 1.5, 2.5}).p, 0);
  EXPECT_TRUE(std::isnan(ComparePairs({1}, {2}).low));
}

}  // namespace
}  // namespace denseformer
