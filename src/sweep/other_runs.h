// The runs of a ledger that no table of a document uses, so that every run is reported.
#ifndef DENSEFORMER_SWEEP_OTHER_RUNS_H_
#define DENSEFORMER_SWEEP_OTHER_RUNS_H_

#include <vector>

#include "sweep/ledger.h"
#include "sweep/results.h"
#include "sweep/text_table.h"

namespace denseformer {

// In the order of the ledger; points into it.
std::vector<const LedgerJson*> OtherRuns(const Ledger& ledger,
                                         const std::vector<SweepResult>& results);

// One row for each data set and set of options, without the options that all runs of the ledger
// share.
TextTable OtherRunsTable(const Ledger& ledger, const std::vector<const LedgerJson*>& runs);

}  // namespace denseformer

#endif  // DENSEFORMER_SWEEP_OTHER_RUNS_H_
