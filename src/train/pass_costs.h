// What the parts of a training step cost in time, measured once on this machine, and stages of a
// pipeline that are balanced by them.
#ifndef DENSEFORMER_TRAIN_PASS_COSTS_H_
#define DENSEFORMER_TRAIN_PASS_COSTS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "denseformer/config.h"
#include "denseformer/depth_pattern.h"
#include "model/stage.h"
#include "tensor/dtype.h"

namespace denseformer {

// Seconds per token of a pass, but `update`.
struct PassCosts {
  double block_forward = 0, block_backward = 0;    // of one block
  double source_forward = 0, source_backward = 0;  // of one source of one average
  double input_forward = 0, input_backward = 0;    // embedding
  double head = 0;                                 // forward and backward
  double update = 0;                               // of one parameter: norm, AdamW, packed copy
};

// A row per field: JSON, messages and tests read it.
struct PassCostField {
  const char* name;
  double PassCosts::*field;
};
const std::vector<PassCostField>& PassCostFields();
nlohmann::ordered_json ToJson(const PassCosts& costs);
// Throws kInvalid where a field is missing, unknown, or not a number from 0 on; `where` names it.
PassCosts PassCostsFromJson(const nlohmann::json& json, const std::string& where);

// On passes of `sequences` x `length` tokens, from the fastest of a few: takes about a second,
// longer where one pass does.
PassCosts MeasurePassCosts(const ModelConfig& config, DType compute, int64_t sequences,
                           int64_t length);

// Seconds per token of the passes of a stage; recomputation counts as a second forward pass of all
// blocks but the last.
struct StageCost {
  double forward = 0, backward = 0;
};
StageCost CostOfStage(const PassCosts& costs, const DepthPattern& pattern, const Stage& stage,
                      bool recompute);

// The cuts for which the slowest of `stages` stages is fastest; of equal ones the first. An average
// counts with the block before it. Throws kUsage where there are fewer blocks than stages.
std::vector<int> BalancedCuts(const PassCosts& costs, const DepthPattern& pattern, int stages,
                              bool recompute);

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_PASS_COSTS_H_
