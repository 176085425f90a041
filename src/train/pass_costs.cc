#include "train/pass_costs.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/random.h"
#include "model/backward.h"
#include "model/head.h"
#include "train/optimizer.h"

namespace denseformer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSeconds = 0.25;  // for each of the two models
constexpr int kLeastRounds = 3;

// Seconds of the parts of a step, each the smallest of some rounds.
struct PartTimes {
  double input_forward = INFINITY, blocks_forward = INFINITY, head = INFINITY;
  double blocks_backward = INFINITY, input_backward = INFINITY, update = INFINITY;
};

class Stopwatch {
 public:
  // The time since the last call, into `best` where it is smaller.
  void Lap(double& best) {
    const Clock::time_point now = Clock::now();
    best = std::min(best, std::chrono::duration<double>(now - last_).count());
    last_ = now;
  }

 private:
  Clock::time_point last_ = Clock::now();
};

PartTimes MeasureParts(const ModelConfig& config, DType compute, int64_t sequences,
                       int64_t length) {
  Model model(config, compute, ModelUse::kTraining);
  model.Initialize(1);
  // A weight of 0 would take its source out of the sum.
  for (const Parameter& p : model.table().all()) {
    if (!p.mixes()) continue;
    for (int64_t e = 0; e < p.count(); ++e) model.weights()[p.offset + e] += 0.01f;
  }
  model.WeightsChanged();
  Activations a(model, sequences, length, ModelUse::kTraining);
  TrainOptions options;
  options.model = config;
  Optimizer optimizer(model, options);
  std::vector<int32_t> tokens(static_cast<size_t>(a.rows()));
  Random random(1, HashName("pass costs"));
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(random.Below(static_cast<uint64_t>(config.vocab_size)));
  }
  const BlockRange blocks = {1, config.n_layer};
  const std::span<float> losses = std::span<float>(a.losses).first(tokens.size());
  PartTimes best;
  const Clock::time_point begin = Clock::now();
  for (int round = 0;; ++round) {
    const double passed = std::chrono::duration<double>(Clock::now() - begin).count();
    if (round >= kLeastRounds && passed > kSeconds) break;
    Stopwatch watch;
    InputForward(model, tokens, {}, a, {});
    watch.Lap(best.input_forward);
    BlocksForward(model, blocks, {}, a);
    watch.Lap(best.blocks_forward);
    StartBackward(model, Gradients::kReplace, a);
    HeadForwardBackward(model, a, tokens, 1.0f / static_cast<float>(a.rows()), Gradients::kReplace,
                        losses);
    HeadNormBackward(model, a);
    watch.Lap(best.head);
    BlocksBackward(model, blocks, {}, Gradients::kReplace, a);
    watch.Lap(best.blocks_backward);
    InputBackward(model, tokens, {}, Gradients::kReplace, a);
    watch.Lap(best.input_backward);
    // A learning rate of 0 leaves the weights as they are.
    optimizer.SquaredGradientNorm(0, a.matrix_squares);
    optimizer.Update(0, /*rate=*/0, /*gradient_scale=*/1);
    watch.Lap(best.update);
  }
  return best;
}

}  // namespace

const std::vector<PassCostField>& PassCostFields() {
  static const std::vector<PassCostField> kFields = {
      {"block_forward", &PassCosts::block_forward},
      {"block_backward", &PassCosts::block_backward},
      {"source_forward", &PassCosts::source_forward},
      {"source_backward", &PassCosts::source_backward},
      {"input_forward", &PassCosts::input_forward},
      {"input_backward", &PassCosts::input_backward},
      {"head", &PassCosts::head},
      {"update", &PassCosts::update},
  };
  return kFields;
}

nlohmann::ordered_json ToJson(const PassCosts& costs) {
  nlohmann::ordered_json json;
  for (const PassCostField& row : PassCostFields()) json[row.name] = costs.*row.field;
  return json;
}

PassCosts PassCostsFromJson(const nlohmann::json& json, const std::string& where) {
  PassCosts costs;
  if (!json.is_object()) Throw(ErrorCode::kInvalid, "{}: expected an object of costs", where);
  for (const PassCostField& row : PassCostFields()) {
    if (!json.contains(row.name)) Throw(ErrorCode::kInvalid, "{}: no '{}'", where, row.name);
    const nlohmann::json& value = json[row.name];
    if (!value.is_number() || !(value.get<double>() >= 0)) {
      Throw(ErrorCode::kInvalid, "{}: '{}' is {}, expected seconds, 0 or more", where, row.name,
            value.dump());
    }
    costs.*row.field = value.get<double>();
  }
  for (const auto& [name, value] : json.items()) {
    const auto& fields = PassCostFields();
    const std::string& key = name;
    if (std::none_of(fields.begin(), fields.end(),
                     [&](const PassCostField& row) { return key == row.name; })) {
      Throw(ErrorCode::kInvalid, "{}: unknown '{}'", where, name);
    }
  }
  return costs;
}

PassCosts MeasurePassCosts(const ModelConfig& config, DType compute, int64_t sequences,
                           int64_t length) {
  // All blocks cost the same: two of them, and four with averages over all earlier outputs.
  ModelConfig part = config;
  part.mixer = "static";
  part.streams = "r";
  part.mixer_norm = "none";
  part.n_layer = 2;
  part.dwa = "none";
  const PartTimes plain = MeasureParts(part, compute, sequences, length);
  const int64_t parameters = ParameterTable(part, DepthPattern(part.n_layer)).count();
  part.n_layer = 4;
  part.dwa = "1x1";
  const PartTimes averaged = MeasureParts(part, compute, sequences, length);
  const double sources =
      static_cast<double>(DepthPattern::Parse(part.dwa, part.n_layer).weight_count());
  const double tokens = static_cast<double>(sequences * length);
  PassCosts costs;
  costs.block_forward = plain.blocks_forward / 2 / tokens;
  costs.block_backward = plain.blocks_backward / 2 / tokens;
  const auto source = [&](double with, double block) {
    return std::max(0.0, with / tokens - 4 * block) / sources;
  };
  costs.source_forward = source(averaged.blocks_forward, costs.block_forward);
  costs.source_backward = source(averaged.blocks_backward, costs.block_backward);
  costs.input_forward = plain.input_forward / tokens;
  costs.input_backward = plain.input_backward / tokens;
  costs.head = plain.head / tokens;
  costs.update = plain.update / static_cast<double>(parameters);
  return costs;
}

StageCost CostOfStage(const PassCosts& costs, const DepthPattern& pattern, const Stage& stage,
                      bool recompute) {
  const int blocks = stage.blocks.last - stage.blocks.first + 1;
  int sources = 0;
  for (int i = stage.blocks.first; i <= pattern.depth(); ++i) {
    for (const int j : pattern.sources(i)) sources += stage.Adds(pattern, i, j);
  }
  StageCost cost;
  cost.forward = blocks * costs.block_forward + sources * costs.source_forward;
  cost.backward = blocks * costs.block_backward + sources * costs.source_backward;
  if (recompute) cost.backward += (blocks - 1) * costs.block_forward;
  if (stage.first()) {
    cost.forward += costs.input_forward;
    cost.backward += costs.input_backward;
  }
  if (stage.last()) cost.backward += costs.head;
  return cost;
}

std::vector<int> BalancedCuts(const PassCosts& costs, const DepthPattern& pattern, int stages,
                              bool recompute) {
  const int depth = pattern.depth();
  if (stages < 1 || stages > depth) EvenCuts(depth, stages);  // says what is wrong
  std::vector<double> until(static_cast<size_t>(depth) + 1);  // cost of blocks 1..i
  for (int i = 1; i <= depth; ++i) {
    const double sources = static_cast<double>(pattern.sources(i).size());
    until[i] = until[i - 1] + costs.block_forward * (recompute ? 2 : 1) + costs.block_backward +
               sources * (costs.source_forward + costs.source_backward);
  }
  const auto stage_cost = [&](int stage, int before, int last) {
    double cost = until[last] - until[before];
    if (stage == 0) cost += costs.input_forward + costs.input_backward;
    if (stage == stages - 1) cost += costs.head;
    return cost;
  };
  // best[s][i]: of the slowest stage where stages 0..s have the blocks 1..i.
  const size_t width = static_cast<size_t>(depth) + 1;
  std::vector<std::vector<double>> best(stages, std::vector<double>(width, INFINITY));
  std::vector<std::vector<int>> before(stages, std::vector<int>(width, 0));
  for (int s = 0; s < stages; ++s) {
    for (int i = s + 1; i <= depth; ++i) {
      for (int k = s; k < i; ++k) {
        if (s == 0 && k > 0) break;
        const double slowest = std::max(s == 0 ? 0 : best[s - 1][k], stage_cost(s, k, i));
        if (slowest < best[s][i]) {
          best[s][i] = slowest;
          before[s][i] = k;
        }
      }
    }
  }
  std::vector<int> cuts;
  for (int s = stages - 1, i = depth; s > 0; --s) cuts.push_back(i = before[s][i]);
  std::reverse(cuts.begin(), cuts.end());
  return cuts;
}

}  // namespace denseformer
