#include "sweep/exchange.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/testing.h"
#include "sweep/results.h"
#include "sweep/testing.h"

namespace denseformer {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

TEST(Exchange, FirstReach) {
  const std::vector<double> x = {1, 1.25, 1.5};
  EXPECT_DOUBLE_EQ(FirstReach(x, {3, 2, 1}, 2.5), 1.125);
  EXPECT_DOUBLE_EQ(FirstReach(x, {3, 2, 1}, 1.5), 1.375);
  EXPECT_DOUBLE_EQ(FirstReach(x, {3, 2, 1}, 1), 1.5);
  EXPECT_DOUBLE_EQ(FirstReach(x, {3, 2, 1}, 4), 1);
  EXPECT_EQ(FirstReach(x, {3, 2, 1}, 0.5), std::numeric_limits<double>::infinity());
  // More steps may do worse; the first place counts.
  EXPECT_DOUBLE_EQ(FirstReach(x, {3, 1, 2}, 2), 1.125);
  EXPECT_DOUBLE_EQ(FirstReach(x, {3, 4, 1}, 2.5), 1.375);
}

class ExchangeTest : public testing::Test {
 protected:
  // The sentence for losses of 4x5, and of the Transformer at 1, 1.25 and 1.5 times its steps.
  std::string Text(const std::vector<std::vector<double>>& losses, double time_ratio) {
    const std::string path = scratch_ / fmt::format("{}.jsonl", ++ledgers_);
    Ledger ledger(path);
    for (size_t r = 0; r < losses.size(); ++r) AppendRuns(file_.rows[r], losses[r], ledger);
    const SweepResult result = Summarize(file_, ledger);
    return ExchangeText(result.exchanges.at(0), time_ratio, time_ratio / 50);
  }

  const TemporaryDirectory scratch_;
  const SweepFile file_ = ParseSweepFile(R"(data = "d"
seeds = [1, 2, 3]
options = { preset = "test", steps = 100 }
row = [{ name = "4x5", options = { dwa = "1x1" } },
  { name = "Transformer, longest", options = { dwa = "none", steps = 150 } },
  { name = "Transformer", options = { dwa = "none" } },
  { name = "Transformer, longer", options = { dwa = "none", steps = 125 } }]
[[exchange]]
model = "4x5"
others = ["Transformer", "Transformer, longer", "Transformer, longest"]
)",
                                         "sweep.toml", "");
  int ledgers_ = 0;
};

constexpr const char* kBegin =
    "Steps with which Transformer reaches the loss of 4x5, over those of 4x5: ";

TEST_F(ExchangeTest, MeanAndInterval) {
  // 1.2, 1.3 and 1.4; t(2) = 4.3027, standard error 0.1 / sqrt(3).
  EXPECT_EQ(Text({{2.2, 1.8, 1.4}, {1, 1, 1}, {3, 3, 3}, {2, 2, 2}}, kNone),
            kBegin + std::string("1.3x, 95 % interval [1.05x, 1.55x] (1.2x, 1.3x, 1.4x by seed)."));
}

TEST_F(ExchangeTest, TimeCountsWhatAStepTakes) {
  EXPECT_EQ(Text({{2.2, 1.8, 1.4}, {1, 1, 1}, {3, 3, 3}, {2, 2, 2}}, 1.3),
            kBegin + std::string("1.3x, 95 % interval [1.05x, 1.55x] (1.2x, 1.3x, 1.4x by seed); "
                                 "training time, where a step of 4x5 takes 1.300 ± 0.026 times as "
                                 "long: 1x, 95 % interval [0.809x, 1.19x] (0.923x, 1x, 1.08x by "
                                 "seed)."));
}

TEST_F(ExchangeTest, BoundsHaveNoMean) {
  EXPECT_EQ(Text({{0.5, 1.8, 3.5}, {1, 1, 1}, {3, 3, 3}, {2, 2, 2}}, kNone),
            kBegin + std::string("beyond 1.5x, 1.3x, at most 1x by seed. There is no mean, as some "
                                 "are bounds."));
}

TEST_F(ExchangeTest, ASeedNeedsAllRuns) {
  EXPECT_EQ(Text({{2.2, 1.8}, {1, 1}, {3, 3}, {2, kNone}}, kNone),
            kBegin + std::string("1.2x by seed."));
  EXPECT_EQ(Text({}, 1.5), kBegin + std::string("not run."));
}

}  // namespace
}  // namespace denseformer
