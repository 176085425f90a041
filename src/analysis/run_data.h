// What a run directory records, read for analyses and reports.
#ifndef DENSEFORMER_ANALYSIS_RUN_DATA_H_
#define DENSEFORMER_ANALYSIS_RUN_DATA_H_

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "denseformer/config.h"

namespace denseformer {

// Values of one key of metrics.jsonl, with the place in the run.
struct Curve {
  std::vector<double> step, tokens, seconds, value;
};

struct AlphaSnapshot {
  int64_t step = 0;
  std::map<int, std::vector<double>> modules;  // after block i: weights, oldest source first
};

struct RunData {
  std::string path;
  std::string name;  // the last part of the path, made unique by ReadRuns
  ModelConfig config;
  nlohmann::ordered_json summary;  // summary.json; null where the run is not finished
  std::string options;             // train.toml; empty where there is none
  Curve train_loss, validation_loss, learning_rate, gradient_norm, throughput;
  std::vector<AlphaSnapshot> alphas;
  std::map<std::string, nlohmann::ordered_json> studies;  // RUN/analysis/NAME.json
  std::vector<std::string> outdated;  // studies written before the weights that are there now
};

// Throws kNotFound where `path` is no run directory, kCorrupt for a damaged file, naming file and
// line. Files that a run need not have may be missing.
RunData ReadRun(const std::string& path);

// Several runs; names that occur twice are told apart by the folder before, or by the whole path.
// Throws kUsage where one run is given twice.
std::vector<RunData> ReadRuns(const std::vector<std::string>& paths);

// "48 blocks, 4x5": what tells runs apart in a legend.
std::string Describe(const ModelConfig& config);

}  // namespace denseformer

#endif  // DENSEFORMER_ANALYSIS_RUN_DATA_H_
