// The training loop: a run directory that can be stopped at any moment and resumes exactly.
//
// Step s (from 0) is TrainStep::Run (train_step.h) with the batch of s and the learning rate of the
// schedule at s. A loss or a gradient that is not finite skips the update; the step still counts,
// so that schedule and batches advance. After max_bad_steps of them in a row the run ends with a
// diagnosis.
//
// A new run saves a checkpoint before its first step, so that a run that cannot save says so at
// once and a killed one always has something to resume from. Everything that decides a step is in
// the checkpoint or a pure function of (seed, step); what was logged after the checkpoint is cut
// off when the run resumes.
#ifndef DENSEFORMER_TRAIN_TRAINER_H_
#define DENSEFORMER_TRAIN_TRAINER_H_

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "dist/communicator.h"
#include "train/options.h"
#include "train/plan.h"
#include "train/rank_grid.h"
#include "train/stored_options.h"

namespace denseformer {

inline constexpr const char* kSummaryFile = "summary.json";

struct TrainRequest {
  std::string run;
  TrainOptions options;  // resolved
  bool resume = false;
  std::vector<std::string> forced;  // keys of options that may differ from the run's (--force)
  PipelineRequest pipeline;         // on several ranks
  // Called once the place and the data are found to be right and the run is locked.
  std::function<void(const TrainPlan&)> checked = [](const TrainPlan&) {};
};

// Trains to the last step and returns what it wrote to summary.json. On SIGINT or SIGTERM (where
// CatchInterrupts was called) finishes the step, saves, and throws kInterrupted. Throws kUsage
// where the run exists and resume is not set, kNotFound where it does not and it is, kBusy where
// another process writes to it, kNonFinite with a diagnosis, kIo where the disk fails; the last
// checkpoint is whole in every case.
nlohmann::ordered_json Train(const TrainRequest& request);

// The same on several ranks that share each step (rank_grid.h); all call it with the same
// options and data, or get kInvalid. The run's directory is rank 0's, and its files do not tell how
// many ranks there were. A signal to any rank stops all after the same step. Returns null on the
// other ranks.
nlohmann::ordered_json Train(const TrainRequest& request, Communicator& world);

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_TRAINER_H_
