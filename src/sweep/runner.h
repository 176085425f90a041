// Trains the runs that a ledger lacks, each in a process of its own.
//
// A run is a directory of its own below RUNS, named after the run and its key; a directory that
// holds a run with the same options and data under any other name is adopted. A run that was
// stopped resumes from its checkpoint; one that is finished is only read. So whatever is killed, at
// whatever moment, and started again: nothing is lost and nothing is trained twice. Processes of a
// runner that dies are asked to stop, and save; a run that another process still holds is waited
// for.
#ifndef DENSEFORMER_SWEEP_RUNNER_H_
#define DENSEFORMER_SWEEP_RUNNER_H_

#include <string>
#include <vector>

#include "sweep/ledger.h"
#include "sweep/plan.h"

namespace denseformer {

struct RunnerOptions {
  std::string runs;     // directory of the run directories
  std::string program;  // path of this program
  std::string version;  // of this program, for the ledger
  DataSets data;
  int jobs = 1;     // processes at a time
  int threads = 1;  // of each
  int nice = 19;
  int64_t study_tokens = 1 << 14;  // validation tokens of the studies cosine, sources, pruning
  // Remove the directory of a run once it is in the ledger, unless its studies failed.
  bool remove_finished = false;
};

// Returns when every run has a row in the ledger: finished, diverged or failed. Throws kUsage where
// a data set is not known, kInvalid where it is not the one of the ledger, kBusy where another
// runner uses the ledger or the directory, kInterrupted after a signal (the processes have saved by
// then).
void RunMissing(const std::vector<PlannedRun>& missing, const RunnerOptions& options,
                Ledger& ledger);

// The row of a run directory that is finished; throws kCorrupt where it is not.
LedgerJson RowOfRun(const PlannedRun& run, const std::string& directory,
                    const RunnerOptions& options);

}  // namespace denseformer

#endif  // DENSEFORMER_SWEEP_RUNNER_H_
