// What a run would be, before it begins (--dry-run).
#ifndef DENSEFORMER_TRAIN_PLAN_H_
#define DENSEFORMER_TRAIN_PLAN_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "data/batches.h"
#include "model/summary.h"
#include "train/options.h"
#include "train/train_data.h"

namespace denseformer {

struct TrainPlan {
  int64_t parameters = 0, dwa_weights = 0;
  MemoryUse memory;
  RecomputeEffect recompute;  // what train.recompute costs and saves, or would
  int64_t checkpoint_bytes = 0;
  int64_t tokens_per_step = 0, tokens = 0;
  int64_t train_tokens = 0, validation_tokens = 0;  // of the data
  double epochs = 0;
  double step_seconds = 0;  // measured; 0 where it was not
  double gemm_share = 0;    // measured
};

// "20 % more operations per step, 1.2 GiB less memory".
std::string DescribeRecompute(const RecomputeEffect& effect);

// Throws where the machine has less memory free than a process of a run with these options takes
// that has this part of the model, and `sequences` per pass.
void RequireTrainingMemory(const TrainOptions& options, int64_t sequences, const StageUse& use);
// Of a run in one process.
void RequireTrainingMemory(const TrainOptions& options);

// The plan of a run on these data, without a measurement; of a process that has `sequences` of each
// pass and takes `memory`.
TrainPlan PlanRun(const TrainOptions& options, const TrainData& data, const TrainBatches& batches,
                  int64_t sequences, const MemoryUse& memory);

// Checks options and data as a run would, and times one pass and one update on random weights
// (after one to warm up). Writes nothing.
TrainPlan MakePlan(const TrainOptions& options);

nlohmann::ordered_json MemoryToJson(const MemoryUse& memory);
nlohmann::ordered_json RecomputeToJson(bool on, const RecomputeEffect& effect);
nlohmann::ordered_json PlanToJson(const TrainOptions& options, const TrainPlan& plan);
// The time is left out where it was not measured.
std::string PlanToText(const TrainOptions& options, const TrainPlan& plan);

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_PLAN_H_
