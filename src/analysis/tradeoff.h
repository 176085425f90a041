// Quality against cost over several runs: the paper's Pareto figure and its relatives.
#ifndef DENSEFORMER_ANALYSIS_TRADEOFF_H_
#define DENSEFORMER_ANALYSIS_TRADEOFF_H_

#include <nlohmann/json.hpp>
#include <vector>

#include "analysis/run_data.h"
#include "chart/chart.h"

namespace denseformer {

// What a benchmark measured for the width, depth and pattern of a model; NaN where there is none.
struct MeasuredSpeed {
  double per_second;
  // Time over that of the Transformer of equal depth, measured in turns with it, and its standard
  // error; NaN where the benchmark compares with something else.
  double time_ratio, time_ratio_error;
};
MeasuredSpeed ForwardSpeed(const std::vector<nlohmann::ordered_json>& benches,
                           const ModelConfig& model);
MeasuredSpeed TrainingSpeed(const std::vector<nlohmann::ordered_json>& benches,
                            const ModelConfig& model);
// `per_second` of these: forward passes, and training steps.
double ForwardRate(const std::vector<nlohmann::ordered_json>& benches, const ModelConfig& model);
double TrainingRate(const std::vector<nlohmann::ordered_json>& benches, const ModelConfig& model);

// Whether a benchmark has a speed for this run: a whole pass of its width, depth and pattern.
bool HasSpeedOf(const nlohmann::ordered_json& bench, const RunData& run);

// Perplexity against inference speed and against training speed (from benches, see above), against
// training time, and against dilation and period where the runs differ in them. Charts without at
// least two different places on their x axis are left out.
std::vector<Chart> TradeoffCharts(const std::vector<RunData>& runs,
                                  const std::vector<nlohmann::ordered_json>& benches);

}  // namespace denseformer

#endif  // DENSEFORMER_ANALYSIS_TRADEOFF_H_
