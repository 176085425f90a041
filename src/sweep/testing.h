// A sweep of rows whose runs have given losses.
#ifndef DENSEFORMER_SWEEP_TESTING_H_
#define DENSEFORMER_SWEEP_TESTING_H_

#include <cmath>
#include <string>
#include <vector>

#include "sweep/ledger.h"
#include "sweep/sweep_file.h"

namespace denseformer {

// A row of the ledger for the run with `seed` of a row; NaN for a run that diverged.
inline LedgerJson LedgerRow(const SweepRow& row, int64_t seed, double loss) {
  const TrainOptions options = row.OptionsOf(seed);
  LedgerJson json = {{"key", RunKey(options, row.data)},
                     {"data", row.data},
                     {"seed", seed},
                     {"status", std::isnan(loss) ? "diverged" : "finished"},
                     {"options", CourseOptions(options)}};
  if (std::isnan(loss)) return json;
  json["loss"] = loss;
  json["perplexity"] = std::exp(loss);
  return json;
}

// Appends a run for each loss of a row, in the order of its seeds.
inline void AppendRuns(const SweepRow& row, const std::vector<double>& losses, Ledger& ledger) {
  for (size_t s = 0; s < losses.size(); ++s)
    ledger.Append(LedgerRow(row, row.seeds.at(s), losses[s]));
}

}  // namespace denseformer

#endif  // DENSEFORMER_SWEEP_TESTING_H_
