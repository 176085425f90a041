// What the runs of a sweep file came to: statistics per row, and a verdict per claim.
#ifndef DENSEFORMER_SWEEP_RESULTS_H_
#define DENSEFORMER_SWEEP_RESULTS_H_

#include <optional>
#include <string>
#include <vector>

#include "sweep/exchange.h"
#include "sweep/ledger.h"
#include "sweep/statistics.h"
#include "sweep/sweep_file.h"

namespace denseformer {

struct RowResult {
  const SweepRow* row = nullptr;
  std::vector<const LedgerJson*> runs;  // by seed of the row; null where the run is missing
  int finished = 0, diverged = 0, failed = 0, missing = 0;
  // Of the finished runs.
  Estimate loss, perplexity, tokens_per_second;
  int64_t parameters = 0, dwa_weights = 0;  // 0 where no run finished
  // Loss less that of the baseline with the same seed, where both finished; Holm's p over the rows.
  std::optional<PairedDifference> difference;
  double holm_p = 0;
};

enum class Verdict { kAgrees, kDisagrees, kNotResolved, kNotRun };
const char* VerdictName(Verdict verdict);

struct ClaimResult {
  const Claim* claim = nullptr;
  PairedDifference difference;  // left less right, over the seeds that both have
  double holm_p = 0;            // over the claims of the file
  int diverged = 0;             // runs of the two rows
  Verdict verdict = Verdict::kNotRun;
};

struct SweepResult {
  const SweepFile* file = nullptr;
  std::vector<RowResult> rows;
  std::vector<ClaimResult> claims;
  std::vector<ExchangeResult> exchanges;

  const RowResult& Row(const std::string& name) const;
};

// Keeps pointers into both.
SweepResult Summarize(const SweepFile& file, const Ledger& ledger);

// The metric of the run with this seed; NaN where it is missing or did not finish.
double MetricOfSeed(const std::string& metric, const RowResult& result, int64_t seed);

// A claim about rows of which a run diverged is not resolved: the runs that are left are a
// selection. "less" and "greater" are agreed with or not where Holm's p is below 0.05, by the sign
// of the difference; "equal" agrees where the whole 95 % interval is within the margin, and
// disagrees where all of it is outside. Everything else is not resolved.
Verdict Judge(const ClaimResult& outcome);

}  // namespace denseformer

#endif  // DENSEFORMER_SWEEP_RESULTS_H_
