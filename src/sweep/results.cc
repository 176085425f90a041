#include "sweep/results.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "sweep/metrics.h"

namespace denseformer {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kLevel = 0.05;

RowResult SummarizeRow(const SweepRow& row, const Ledger& ledger) {
  RowResult result;
  result.row = &row;
  std::vector<double> losses, perplexities, speeds;
  for (const int64_t seed : row.seeds) {
    const LedgerJson* run = ledger.Find(RunKey(row.OptionsOf(seed), row.data));
    result.runs.push_back(run);
    const std::string status = run == nullptr ? "" : (*run)["status"].get<std::string>();
    result.missing += run == nullptr;
    result.diverged += status == "diverged";
    result.failed += status == "failed";
    if (status != "finished") continue;
    ++result.finished;
    losses.push_back(MetricOf("loss", *run));
    perplexities.push_back(MetricOf("perplexity", *run));
    if (run->contains("tokens_per_second"))
      speeds.push_back((*run)["tokens_per_second"].get<double>());
    result.parameters = run->value("parameters", int64_t{0});
    result.dwa_weights = run->value("dwa_weights", int64_t{0});
  }
  result.loss = EstimateMean(losses);
  result.perplexity = EstimateMean(perplexities);
  result.tokens_per_second = EstimateMean(speeds);
  return result;
}

// Over the seeds for which both have a value; `right` may be a number.
PairedDifference Compare(const std::string& metric, const RowResult& left, const RowResult* right,
                         double number) {
  std::vector<double> a, b;
  for (const int64_t seed : left.row->seeds) {
    const double value = MetricOfSeed(metric, left, seed);
    const double other = right == nullptr ? number : MetricOfSeed(metric, *right, seed);
    if (std::isnan(value) || std::isnan(other)) continue;
    a.push_back(value);
    b.push_back(other);
  }
  return ComparePairs(a, b);
}

void CompareWithBaseline(const std::string& baseline, SweepResult& result) {
  if (baseline.empty()) return;
  const RowResult& base = result.Row(baseline);
  std::vector<double> p;
  for (RowResult& row : result.rows) {
    if (&row != &base) {
      const PairedDifference difference = Compare("loss", row, &base, 0);
      if (difference.pairs > 0) row.difference = difference;
    }
    p.push_back(row.difference ? row.difference->p : kNone);
  }
  const std::vector<double> holm = HolmAdjusted(p);
  for (size_t i = 0; i < holm.size(); ++i) result.rows[i].holm_p = holm[i];
}

void CheckClaims(const std::vector<Claim>& claims, SweepResult& result) {
  std::vector<double> p;
  for (const Claim& claim : claims) {
    ClaimResult outcome;
    outcome.claim = &claim;
    const auto* row = std::get_if<std::string>(&claim.right);
    const auto* number = std::get_if<double>(&claim.right);
    const RowResult& left = result.Row(claim.left);
    const RowResult* right = row == nullptr ? nullptr : &result.Row(*row);
    outcome.difference = Compare(claim.metric, left, right, number == nullptr ? 0 : *number);
    outcome.diverged = left.diverged + (right == nullptr ? 0 : right->diverged);
    // Only tests of a difference share the level; equality is judged by the interval itself.
    p.push_back(claim.relation == Relation::kEqual ? kNone : outcome.difference.p);
    result.claims.push_back(outcome);
  }
  const std::vector<double> holm = HolmAdjusted(p);
  for (size_t i = 0; i < holm.size(); ++i) {
    ClaimResult& outcome = result.claims[i];
    outcome.holm_p = holm[i];
    outcome.verdict = Judge(outcome);
  }
}

}  // namespace

const char* VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kAgrees:
      return "agrees";
    case Verdict::kDisagrees:
      return "disagrees";
    case Verdict::kNotResolved:
      return "not resolved";
    case Verdict::kNotRun:
      return "not run";
  }
  DF_CHECK(false);
  return "";
}

const RowResult& SweepResult::Row(const std::string& name) const {
  for (const RowResult& row : rows) {
    if (row.row->name == name) return row;
  }
  Throw(ErrorCode::kInternal, "no row '{}'", name);
}

double MetricOfSeed(const std::string& metric, const RowResult& result, int64_t seed) {
  for (size_t s = 0; s < result.runs.size(); ++s) {
    if (result.row->seeds[s] == seed && result.runs[s] != nullptr)
      return MetricOf(metric, *result.runs[s]);
  }
  return kNone;
}

Verdict Judge(const ClaimResult& outcome) {
  const Claim& claim = *outcome.claim;
  const PairedDifference& difference = outcome.difference;
  if (outcome.diverged > 0) return Verdict::kNotResolved;
  if (difference.pairs < 1) return Verdict::kNotRun;
  if (difference.pairs < 2) return Verdict::kNotResolved;
  if (claim.relation == Relation::kEqual) {
    if (difference.low > -claim.margin && difference.high < claim.margin) return Verdict::kAgrees;
    const bool outside = difference.low > claim.margin || difference.high < -claim.margin;
    return outside ? Verdict::kDisagrees : Verdict::kNotResolved;
  }
  if (!(outcome.holm_p < kLevel)) return Verdict::kNotResolved;
  const bool less = difference.mean < 0;
  return less == (claim.relation == Relation::kLess) ? Verdict::kAgrees : Verdict::kDisagrees;
}

SweepResult Summarize(const SweepFile& file, const Ledger& ledger) {
  SweepResult result;
  result.file = &file;
  for (const SweepRow& row : file.rows) result.rows.push_back(SummarizeRow(row, ledger));
  CompareWithBaseline(file.baseline, result);
  CheckClaims(file.claims, result);
  for (const Exchange& exchange : file.exchanges) {
    std::vector<const RowResult*> others;
    for (const std::string& other : exchange.others) others.push_back(&result.Row(other));
    result.exchanges.push_back(MakeExchange(exchange, result.Row(exchange.model), others));
  }
  return result;
}

}  // namespace denseformer
