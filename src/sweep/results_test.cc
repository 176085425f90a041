// Verdicts, and what becomes of diverged runs and of runs in no table.
#include "sweep/results.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/testing.h"
#include "sweep/document.h"
#include "sweep/other_runs.h"
#include "sweep/testing.h"

namespace denseformer {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

Verdict JudgeOf(Relation relation, const PairedDifference& difference, double holm_p,
                int diverged = 0) {
  Claim claim;
  claim.relation = relation;
  claim.margin = relation == Relation::kEqual ? 0.1 : 0;
  return Judge({&claim, difference, holm_p, diverged, Verdict::kNotRun});
}

PairedDifference Difference(int pairs, double mean, double low, double high) {
  PairedDifference difference;
  difference.pairs = pairs;
  difference.mean = mean;
  difference.low = low;
  difference.high = high;
  return difference;
}

TEST(Judge, TooFewPairs) {
  const PairedDifference none = Difference(0, kNone, kNone, kNone),
                         one = Difference(1, -1, kNone, kNone);
  for (const Relation relation : {Relation::kLess, Relation::kGreater, Relation::kEqual}) {
    EXPECT_EQ(JudgeOf(relation, none, kNone), Verdict::kNotRun);
    EXPECT_EQ(JudgeOf(relation, one, kNone), Verdict::kNotResolved);
  }
}

TEST(Judge, LessAndGreater) {
  const PairedDifference below = Difference(3, -1, -2, -0.5), above = Difference(3, 1, 0.5, 2);
  EXPECT_EQ(JudgeOf(Relation::kLess, below, 0.01), Verdict::kAgrees);
  EXPECT_EQ(JudgeOf(Relation::kLess, above, 0.01), Verdict::kDisagrees);
  EXPECT_EQ(JudgeOf(Relation::kGreater, above, 0.01), Verdict::kAgrees);
  EXPECT_EQ(JudgeOf(Relation::kGreater, below, 0.01), Verdict::kDisagrees);
  EXPECT_EQ(JudgeOf(Relation::kLess, below, 0.05), Verdict::kNotResolved);
  EXPECT_EQ(JudgeOf(Relation::kLess, below, kNone), Verdict::kNotResolved);
}

TEST(Judge, Equal) {
  EXPECT_EQ(JudgeOf(Relation::kEqual, Difference(3, 0, -0.09, 0.09), kNone), Verdict::kAgrees);
  EXPECT_EQ(JudgeOf(Relation::kEqual, Difference(3, 0, -0.11, 0.09), kNone), Verdict::kNotResolved);
  EXPECT_EQ(JudgeOf(Relation::kEqual, Difference(3, 0, -0.09, 0.11), kNone), Verdict::kNotResolved);
  EXPECT_EQ(JudgeOf(Relation::kEqual, Difference(3, 0.2, 0.11, 0.3), kNone), Verdict::kDisagrees);
  EXPECT_EQ(JudgeOf(Relation::kEqual, Difference(3, -0.2, -0.3, -0.11), kNone),
            Verdict::kDisagrees);
}

TEST(Judge, DivergedRunsLeaveAClaimOpen) {
  EXPECT_EQ(JudgeOf(Relation::kLess, Difference(3, -1, -2, -0.5), 0.01, 1), Verdict::kNotResolved);
  EXPECT_EQ(JudgeOf(Relation::kEqual, Difference(3, 0, -0.09, 0.09), kNone, 1),
            Verdict::kNotResolved);
  EXPECT_EQ(JudgeOf(Relation::kLess, Difference(0, kNone, kNone, kNone), kNone, 3),
            Verdict::kNotResolved);
}

constexpr const char* kSweep = R"(title = "Part"
data = "d"
seeds = [1, 2, 3, 4]
options = { preset = "test" }
[[grid]]
name = "{dwa}"
axes = { dwa = ["none", "1x1"] }
[[claim]]
text = "Averages help."
less = ["1x1", "none"]
)";

TEST(Results, SurvivorsOfARowDecideNothing) {
  const TemporaryDirectory scratch;
  const SweepFile file = ParseSweepFile(kSweep, "part.toml", "");
  Ledger whole(scratch / "whole.jsonl");
  AppendRuns(file.rows[0], {3.0, 3.1, 3.2, 3.3}, whole);
  AppendRuns(file.rows[1], {2.0, 2.11, 2.2, 2.3}, whole);
  EXPECT_EQ(Summarize(file, whole).claims[0].verdict, Verdict::kAgrees);

  Ledger diverged(scratch / "diverged.jsonl");
  AppendRuns(file.rows[0], {3.0, 3.1, 3.2, 3.3}, diverged);
  AppendRuns(file.rows[1], {2.0, 2.11, 2.2, kNone}, diverged);
  DocumentInput input;
  input.results = {Summarize(file, diverged)};
  EXPECT_EQ(input.results[0].claims[0].verdict, Verdict::kNotResolved);
  EXPECT_EQ(input.results[0].claims[0].diverged, 1);
  const std::string said = "1 run diverged, so that those left are a selection";
  EXPECT_NE(DocumentToMarkdown(input).find(said), std::string::npos);
  EXPECT_NE(FindingsToMarkdown(input).find(said), std::string::npos);
}

TEST(Results, ARowWithoutSurvivorsIsSaidToHaveDiverged) {
  const TemporaryDirectory scratch;
  const SweepFile file = ParseSweepFile(kSweep, "part.toml", "");
  Ledger ledger(scratch / "ledger.jsonl");
  AppendRuns(file.rows[0], {3.0, 3.1}, ledger);
  AppendRuns(file.rows[1], {kNone, kNone}, ledger);
  DocumentInput input;
  input.results = {Summarize(file, ledger)};
  const std::string findings = FindingsToMarkdown(input);
  EXPECT_NE(
      findings.find("- Averages help. 2 runs diverged, so that those left are a selection.\n"),
      std::string::npos)
      << findings;
}

TEST(Results, RunsInNoTableAreListed) {
  const TemporaryDirectory scratch;
  const SweepFile file = ParseSweepFile(kSweep, "part.toml", "");
  SweepRow other = file.rows[0];
  other.options.emplace_back("optimizer.lr", "0.25");
  Ledger ledger(scratch / "ledger.jsonl");
  AppendRuns(file.rows[0], {3.0, 3.1}, ledger);
  AppendRuns(other, {4.0, kNone}, ledger);
  DocumentInput input;
  input.results = {Summarize(file, ledger)};
  const std::vector<const LedgerJson*> runs = OtherRuns(ledger, input.results);
  ASSERT_EQ(runs.size(), 2u);
  input.other_runs = OtherRunsTable(ledger, runs);
  input.other_run_count = 2;
  ASSERT_EQ(input.other_runs.rows.size(), 1u);
  EXPECT_EQ(input.other_runs.rows[0],
            (std::vector<std::string>{"optimizer.lr = 0.25", "d", "1, 2", "4.000, 1 diverged"}));
  EXPECT_NE(DocumentToMarkdown(input).find("2 runs of the ledger are in no table above"),
            std::string::npos);
  EXPECT_NE(DocumentToHtml(input).find("optimizer.lr = 0.25"), std::string::npos);
}

}  // namespace
}  // namespace denseformer
