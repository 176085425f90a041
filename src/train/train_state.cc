#include "train/train_state.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "dist/collectives.h"
#include "io/checkpoint.h"

namespace denseformer {

TrainerState ToTrainerState(const RunState& state) {
  TrainerState stored;
  stored.step = state.step;
  stored.validation_loss = state.validation_loss;
  stored.trainer = {{"updates", state.updates},
                    {"dwa_updates", state.dwa_updates},
                    {"skipped", state.skipped},
                    {"bad_in_row", state.bad_in_row},
                    {"eval_pending", state.eval_pending},
                    {"seconds", state.seconds},
                    {"step_seconds", state.step_seconds},
                    {"metrics_bytes", state.log.metrics_bytes},
                    {"alphas_bytes", state.log.alphas_bytes},
                    {"metrics_hash", state.log.metrics_hash},
                    {"alphas_hash", state.log.alphas_hash},
                    {"course", state.course},
                    {"train_data", state.train_data},
                    {"validation_data", state.validation_data}};
  if (state.best) {
    stored.trainer["best"] = {{"step", state.best->step}, {"loss", state.best->loss}};
  }
  if (!state.cuts.empty()) stored.trainer["cuts"] = state.cuts;
  return stored;
}

TrainerState BroadcastState(Communicator& world, const TrainerState& state) {
  nlohmann::json json = {{"step", state.step}, {"trainer", state.trainer}};
  if (state.validation_loss) json["validation_loss"] = *state.validation_loss;
  json = nlohmann::json::parse(BroadcastText(world, json.dump()));
  TrainerState result;
  result.step = json["step"];
  if (json.contains("validation_loss")) result.validation_loss = json["validation_loss"];
  result.trainer = json["trainer"];
  return result;
}

std::map<std::string, std::string> CourseOf(const TrainOptions& options) {
  std::map<std::string, std::string> course;
  for (const OptionRow& row : TrainOptionTable()) {
    if (row.course) course[row.key] = row.get(options);
  }
  return course;
}

RunState FromTrainerState(const TrainerState& stored, const std::string& where) {
  RunState state;
  try {
    const nlohmann::json& t = stored.trainer;
    state.step = stored.step;
    state.validation_loss = stored.validation_loss;
    state.updates = t.at("updates").get<int64_t>();
    state.dwa_updates = t.at("dwa_updates").get<int64_t>();
    state.skipped = t.at("skipped").get<int64_t>();
    state.bad_in_row = t.at("bad_in_row").get<int>();
    state.eval_pending = t.at("eval_pending").get<bool>();
    state.seconds = t.at("seconds").get<double>();
    state.step_seconds = t.at("step_seconds").get<double>();
    // Checkpoints of earlier versions have no hashes and no options.
    state.log = {stored.step, t.at("metrics_bytes").get<uint64_t>(),
                 t.at("alphas_bytes").get<uint64_t>(), t.value("metrics_hash", std::string()),
                 t.value("alphas_hash", std::string())};
    state.course = t.value("course", state.course);
    state.cuts = t.value("cuts", state.cuts);
    state.train_data = t.at("train_data").get<std::string>();
    state.validation_data = t.at("validation_data").get<std::string>();
    if (t.contains("best")) {
      state.best = Best{t["best"].at("step").get<int64_t>(), t["best"].at("loss").get<double>()};
    }
  } catch (const nlohmann::json::exception& error) {
    Throw(ErrorCode::kCorrupt, "{}: state.json is not that of a training run: {}", where,
          JsonProblem(error.what()));
  }
  return state;
}

std::string StoredCuts(const std::string& run, int stages) {
  const std::vector<CheckpointInfo> checkpoints = ListCheckpoints(run);
  for (size_t i = checkpoints.size(); i-- > 0;) {
    try {
      const std::string& path = checkpoints[i].path;
      const std::string cuts = FromTrainerState(ReadState(path), path).cuts;
      return !cuts.empty() && std::count(cuts.begin(), cuts.end(), ',') == stages - 2 ? cuts : "";
    } catch (const Error&) {
      continue;  // resuming says it
    }
  }
  return "";
}

}  // namespace denseformer
