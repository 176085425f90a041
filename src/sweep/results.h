// What the runs of a sweep file came to: statistics per row, and a verdict per claim.
#ifndef DENSEFORMER_SWEEP_RESULTS_H_
#define DENSEFORMER_SWEEP_RESULTS_H_

#include <optional>
#include <string>
#include <vector>

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
  Verdict verdict = Verdict::kNotRun;
};

struct SweepResult {
  const SweepFile* file = nullptr;
  std::vector<RowResult> rows;
  std::vector<ClaimResult> claims;

  const RowResult& Row(const std::string& name) const;
};

// Keeps pointers into both.
SweepResult Summarize(const SweepFile& file, const Ledger& ledger);

// "less" and "greater" are agreed with or not where Holm's p is below 0.05, by the sign of the
// difference; "equal" agrees where the whole 95 % interval is within the margin, and disagrees
// where all of it is outside. Everything else is not resolved.
Verdict Judge(const Claim& claim, const PairedDifference& difference, double holm_p);

}  // namespace denseformer

#endif  // DENSEFORMER_SWEEP_RESULTS_H_
