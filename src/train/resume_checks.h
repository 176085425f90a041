// Whether a run that resumes is still the one that its checkpoint was trained as.
#ifndef DENSEFORMER_TRAIN_RESUME_CHECKS_H_
#define DENSEFORMER_TRAIN_RESUME_CHECKS_H_

#include "train/train_data.h"
#include "train/train_state.h"
#include "train/trainer.h"

namespace denseformer {

// Refuses options that alter the course of the run (kUsage) unless --force names them; whether any
// were forced.
bool CheckCourse(const TrainRequest& request, const RunState& state);

// Refuses other token files than those that the run began with (kUsage), unless --force names
// data.path; those of `data` become the run's.
void CheckData(const TrainRequest& request, const TrainData& data, RunState& state);

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_RESUME_CHECKS_H_
