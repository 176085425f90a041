// Which runs a set of sweep files needs, and what each will take.
#ifndef DENSEFORMER_SWEEP_PLAN_H_
#define DENSEFORMER_SWEEP_PLAN_H_

#include <map>
#include <string>
#include <vector>

#include "sweep/ledger.h"
#include "sweep/sweep_file.h"

namespace denseformer {

// Directories of data sets by name (--data NAME=DIR).
using DataSets = std::map<std::string, std::string>;

struct PlannedRun {
  std::string key;
  std::string name;      // "table1-Transformer-48-s1": for directories and messages
  std::string data;      // name of the data set
  TrainOptions options;  // data.path is filled where the data set is known
  std::vector<std::string> studies;
  // Floating-point operations of its training: what progress and remaining time go by.
  double work = 0;
  double seconds = 0;  // of the training, estimated; NaN where nothing is known
};

// Every run of the files once, in the order of the files, all first seeds before all second ones.
std::vector<PlannedRun> AllRuns(const std::vector<SweepFile>& files, const DataSets& data);

// Those that the ledger lacks, or whose studies it lacks. With `retry_failed` also those that
// failed or diverged.
std::vector<PlannedRun> MissingRuns(const std::vector<PlannedRun>& runs, const Ledger& ledger,
                                    bool retry_failed);

// Fills `seconds` from the ledger: operations per second of the runs with the same width (any where
// there is none), as trained there.
void EstimateSeconds(const Ledger& ledger, std::vector<PlannedRun>& runs);

}  // namespace denseformer

#endif  // DENSEFORMER_SWEEP_PLAN_H_
