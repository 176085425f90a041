// All that a run needs to resume besides weights and moments: kept in the checkpoint's state.json.
#ifndef DENSEFORMER_TRAIN_TRAIN_STATE_H_
#define DENSEFORMER_TRAIN_TRAIN_STATE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "dist/communicator.h"
#include "io/run_directory.h"
#include "train/options.h"
#include "train/run_log.h"

namespace denseformer {

struct Best {
  int64_t step = 0;
  double loss = 0;
};

struct RunState {
  int64_t step = 0;  // finished
  int64_t updates = 0, dwa_updates = 0;
  int64_t skipped = 0;                    // steps with a loss or gradient that was not finite
  int bad_in_row = 0;                     // the last of them
  bool eval_pending = false;              // a validation is due at `step` and was not made yet
  std::optional<double> validation_loss;  // at `step`
  std::optional<Best> best;
  double seconds = 0;       // in all processes
  double step_seconds = 0;  // of that, in steps
  RunLog::Position log;
  std::string train_data, validation_data;  // fingerprints
  // The options that decide the course of the run, by key; empty where not recorded.
  std::map<std::string, std::string> course;
  std::string cuts;  // of its pipeline (RankGrid::cuts); empty without one
};

// The options of a run that decide its course, as RunState keeps them.
std::map<std::string, std::string> CourseOf(const TrainOptions& options);

TrainerState ToTrainerState(const RunState& state);
// That of rank 0, on all ranks.
TrainerState BroadcastState(Communicator& world, const TrainerState& state);
// Throws kCorrupt where a key is missing or of the wrong kind; `where` names the checkpoint.
RunState FromTrainerState(const TrainerState& stored, const std::string& where);

// The cuts of the newest checkpoint that can be read; "" where it is not of `stages` stages.
std::string StoredCuts(const std::string& run, int stages);

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_TRAIN_STATE_H_
