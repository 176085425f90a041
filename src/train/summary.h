// summary.json: what a finished run was and what came out.
#ifndef DENSEFORMER_TRAIN_SUMMARY_H_
#define DENSEFORMER_TRAIN_SUMMARY_H_

#include <nlohmann/json.hpp>

#include "model/model.h"
#include "train/data_parallel.h"
#include "train/evaluate.h"
#include "train/options.h"
#include "train/train_state.h"

namespace denseformer {

struct SummaryInput {
  const TrainOptions& options;
  const RunState& state;
  const Model& model;
  const EvalResult& final;  // over the whole validation stream; 0 tokens where not made
  double seconds = 0;
  double gemm_share = 0;
  double epochs = 0;
  int ranks = 1, stages = 1;
  std::vector<int64_t> peak_memory = {};             // of each rank, in this process
  const CommunicationCost* communication = nullptr;  // of rank 0, in this process; several ranks
};

// The keys are described in docs/training.md.
nlohmann::ordered_json MakeSummary(const SummaryInput& input);

// A model configuration as a JSON object.
nlohmann::ordered_json ModelToJson(const ModelConfig& config);

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_SUMMARY_H_
