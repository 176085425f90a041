// Checks what a trainer keeps in a run directory besides checkpoints (io/run_directory.h checks
// those): train.toml, metrics.jsonl, alphas.jsonl, summary.json.
//
// train.toml and summary.json carry a hash of themselves. The records are hashed up to where each
// checkpoint was saved (state.json), and as a whole when the run has finished (summary.json); what
// a run wrote after its newest checkpoint must be whole lines of JSON, and is cut off when it
// resumes.
#ifndef DENSEFORMER_TRAIN_VERIFY_H_
#define DENSEFORMER_TRAIN_VERIFY_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/run_directory.h"
#include "train/run_log.h"

namespace denseformer {

// The records of a finished run, for summary.json.
nlohmann::ordered_json RecordsToJson(const RunLog::Position& position);

// One entry per file that is there. Files of runs whose checkpoints have no hashes of them (earlier
// versions) are left out; so are all where `run` is a single checkpoint.
std::vector<VerifyResult> VerifyTraining(const std::string& run);

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_VERIFY_H_
