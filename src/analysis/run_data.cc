#include "analysis/run_data.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <set>

#include "analysis/study.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "io/run_directory.h"
#include "train/json_lines.h"

namespace denseformer {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Json ParseJson(const std::string& text, const std::string& where) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) {
    Throw(ErrorCode::kCorrupt, "{}: expected a JSON object; the file is damaged", where);
  }
  return json;
}

// Calls work(object, "file:line") for each line.
void ForEachLine(const std::string& path,
                 const std::function<void(const Json&, const std::string& where)>& work) {
  if (!FileExists(path)) return;
  // What stands after the last line break is a line being written.
  const int start = std::ifstream(path).get();
  if (start != EOF && start != '{')
    Throw(ErrorCode::kCorrupt, "{}: expected lines of JSON; the file is damaged", path);
  int line = 0;
  for (const Json& json : ReadJsonLines(path)) work(json, fmt::format("{}:{}", path, ++line));
}

double Number(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<double>()
                                                   : std::numeric_limits<double>::quiet_NaN();
}

void AddPoint(const Json& json, const char* key, double tokens, const std::string& where,
              Curve& curve) {
  if (!json.contains(key)) return;
  if (!std::isfinite(Number(json, "step")))
    Throw(ErrorCode::kCorrupt, "{}: '{}' without a number 'step'; the line is damaged", where, key);
  // null: a value that was not finite.
  if (!json[key].is_number() && !json[key].is_null()) {
    Throw(ErrorCode::kCorrupt, "{}: '{}' is {}, expected a number; the line is damaged", where, key,
          json[key].dump(-1, ' ', true, Json::error_handler_t::replace));
  }
  curve.step.push_back(Number(json, "step"));
  curve.tokens.push_back(tokens);
  curve.seconds.push_back(Number(json, "seconds"));
  curve.value.push_back(Number(json, key));
}

AlphaSnapshot ReadSnapshot(const Json& json, const std::string& where) {
  AlphaSnapshot snapshot;
  const auto alphas = json.find("alphas");
  if (!json.contains("step") || !json["step"].is_number_integer() || alphas == json.end() ||
      !alphas->is_object()) {
    Throw(ErrorCode::kCorrupt, "{}: expected the keys step and alphas", where);
  }
  snapshot.step = json["step"].get<int64_t>();
  for (const auto& [block, weights] : alphas->items()) {
    std::vector<double>& module =
        snapshot.modules[static_cast<int>(ParseInt(where, block, 1, 1 << 20))];
    if (!weights.is_array())
      Throw(ErrorCode::kCorrupt, "{}: alphas of block {} are no list; the line is damaged", where,
            block);
    for (const Json& weight : weights) {
      module.push_back(weight.is_number() ? weight.get<double>()
                                          : std::numeric_limits<double>::quiet_NaN());
    }
  }
  return snapshot;
}

// The studies in RUN/analysis; other files there are not ours.
void ReadStudies(RunData& run) {
  std::error_code none;
  const auto weights = fs::last_write_time(run.path + "/model.safetensors", none);
  for (const Study* kind : Studies()) {
    const std::string path = fmt::format("{}/analysis/{}.json", run.path, kind->name);
    if (!FileExists(path)) continue;
    Json study = ParseJson(ReadFile(path), path);
    CheckStudy(*kind, study, path);
    run.studies[kind->name] = std::move(study);
    if (!none && fs::last_write_time(path) < weights) run.outdated.push_back(kind->name);
  }
}

}  // namespace

RunData ReadRun(const std::string& path) {
  FindWholeRun(path);
  RunData run;
  run.path = path;
  run.name = fs::path(path).lexically_normal().filename().string();
  if (run.name.empty() || run.name == ".")
    run.name = fs::weakly_canonical(path).filename().string();
  run.config = ReadConfig(path);
  if (FileExists(path + "/summary.json")) {
    run.summary = ParseJson(ReadFile(path + "/summary.json"), path + "/summary.json");
  }
  if (FileExists(path + "/train.toml")) run.options = ReadFile(path + "/train.toml");
  // Validations do not repeat the count of tokens; it is in proportion to the steps.
  double tokens_per_step = std::numeric_limits<double>::quiet_NaN();
  ForEachLine(path + "/metrics.jsonl", [&](const Json& json, const std::string& where) {
    const double step = Number(json, "step");
    if (json.contains("tokens") && step > 0) tokens_per_step = Number(json, "tokens") / step;
    const double tokens = Number(json, "tokens");
    AddPoint(json, "loss", tokens, where, run.train_loss);
    AddPoint(json, "lr", tokens, where, run.learning_rate);
    AddPoint(json, "grad_norm", tokens, where, run.gradient_norm);
    AddPoint(json, "tokens_per_second", tokens, where, run.throughput);
    AddPoint(json, "val_loss", tokens_per_step * step, where, run.validation_loss);
  });
  ForEachLine(path + "/alphas.jsonl", [&](const Json& json, const std::string& where) {
    run.alphas.push_back(ReadSnapshot(json, where));
  });
  ReadStudies(run);
  return run;
}

std::vector<RunData> ReadRuns(const std::vector<std::string>& paths) {
  std::vector<RunData> runs;
  std::set<std::string> places;
  for (const std::string& path : paths) {
    runs.push_back(ReadRun(path));
    if (!places.insert(fs::canonical(path).string()).second)
      Throw(ErrorCode::kUsage, "{}: this run is given twice", path);
  }
  const auto tell_apart = [&](const std::function<std::string(const RunData&)>& longer) {
    std::map<std::string, int> seen;
    for (const RunData& run : runs) ++seen[run.name];
    for (RunData& run : runs) {
      if (seen[run.name] > 1) run.name = longer(run);
    }
  };
  tell_apart([](const RunData& run) {
    return fs::canonical(run.path).parent_path().filename().string() + "/" + run.name;
  });
  tell_apart([](const RunData& run) { return fs::canonical(run.path).string(); });
  return runs;
}

std::string Describe(const ModelConfig& config) {
  std::string text = fmt::format("{} blocks, ", config.n_layer);
  if (config.dwa != "none") {
    text += config.dwa.starts_with("mask:") ? "custom pattern" : config.dwa;
  } else {
    text += config.gains ? "skips with gains" : "Transformer";
  }
  if (config.mixer != "static" || config.streams != "r") text += "+" + config.mixer;
  if (config.streams != "r") text += "+" + config.streams;
  if (config.mixer_norm != "none") text += "+" + config.mixer_norm;
  return config.dwa != "none" && config.gains ? text + " with gains" : text;
}

}  // namespace denseformer
