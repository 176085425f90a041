#include "analysis/tradeoff.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

namespace denseformer {
namespace {

using Json = nlohmann::ordered_json;

// Titles of benchmarks.
constexpr char kForward[] = "whole forward pass";
constexpr char kTraining[] = "whole training step";

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double Perplexity(const RunData& run) {
  if (!run.summary.is_object() || !run.summary.contains("validation")) return kNone;
  const Json& validation = run.summary["validation"];
  const Json value = validation.is_object() ? validation.value("perplexity", Json()) : Json();
  return value.is_number() ? value.get<double>() : kNone;
}

std::string GroupOf(const ModelConfig& config) {
  if (config.dwa != "none") return "DenseFormer " + config.dwa;
  return config.gains ? "Skips with gains" : "Transformer";
}

// A benchmark without a word on mixers is older than they are.
bool IsOfMixer(const Json& settings, const ModelConfig& config) {
  const std::string wanted =
      fmt::format("{}, streams {}, norm {}", config.mixer, config.streams, config.mixer_norm);
  return config.dwa == "none" || settings.value("mixer", "static, streams r, norm none") == wanted;
}

double NumberOf(const Json& row, const char* key) {
  const Json value = row.value(key, Json());
  return value.is_number() ? value.get<double>() : kNone;
}

// Whether the time ratios of a row are over a Transformer's time.
bool ComparesWithTransformer(const Json& bench, const Json& row) {
  const Json name = row.value("baseline", Json());
  for (const Json& other : bench["rows"]) {
    if (other.is_object() && name.is_string() && other.value("name", Json()) == name)
      return other.value("pattern", Json()) == "none";
  }
  return false;
}

// For this width, depth, pattern and mixer; of several batches the first.
MeasuredSpeed SpeedOf(const std::vector<Json>& benches, const std::string& title,
                      const ModelConfig& config) {
  for (const Json& bench : benches) {
    if (bench.value("title", Json()) != title) continue;
    const Json settings = bench.value("settings", Json::object());
    if (!settings.is_object() || settings.value("width", Json()) != std::to_string(config.n_embd) ||
        !IsOfMixer(settings, config)) {
      continue;
    }
    for (const Json& row : bench.value("rows", Json::array())) {
      if (!row.is_object() || row.value("blocks", Json()) != config.n_layer ||
          row.value("pattern", Json()) != config.dwa || row.contains("recompute")) {
        continue;
      }
      const double seconds = NumberOf(row, "median_seconds");
      if (!(seconds > 0)) continue;
      if (!ComparesWithTransformer(bench, row)) return {1 / seconds, kNone, kNone};
      return {1 / seconds, NumberOf(row, "ratio_of_medians"), NumberOf(row, "ratio_error")};
    }
  }
  return {kNone, kNone, kNone};
}

double RateOf(const std::vector<Json>& benches, const std::string& title,
              const ModelConfig& config) {
  return SpeedOf(benches, title, config).per_second;
}

// K and P of "KxP".
struct Sparsity {
  int dilation = 0, period = 0;
};
std::optional<Sparsity> ParseSparsity(const std::string& dwa) {
  const size_t x = dwa.find('x');
  if (x == std::string::npos) return std::nullopt;
  Sparsity sparsity;
  const char* end = dwa.data() + dwa.size();
  const auto k = std::from_chars(dwa.data(), end, sparsity.dilation);
  if (k.ptr != dwa.data() + x) return std::nullopt;
  const auto p = std::from_chars(dwa.data() + x + 1, end, sparsity.period);
  return p.ptr == end ? std::optional(sparsity) : std::nullopt;
}

void AddIfUseful(ScatterChart chart, std::vector<Chart>& charts) {
  std::vector<Point> finite;
  for (const Point& point : chart.points) {
    if (std::isfinite(point.x) && std::isfinite(point.y)) finite.push_back(point);
  }
  const bool same = std::all_of(finite.begin(), finite.end(),
                                [&](const Point& point) { return point.x == finite.front().x; });
  if (finite.size() < 2 || same) return;
  chart.points = finite;
  charts.push_back(std::move(chart));
}

}  // namespace

MeasuredSpeed ForwardSpeed(const std::vector<Json>& benches, const ModelConfig& model) {
  return SpeedOf(benches, kForward, model);
}

MeasuredSpeed TrainingSpeed(const std::vector<Json>& benches, const ModelConfig& model) {
  return SpeedOf(benches, kTraining, model);
}

double ForwardRate(const std::vector<Json>& benches, const ModelConfig& model) {
  return RateOf(benches, kForward, model);
}

double TrainingRate(const std::vector<Json>& benches, const ModelConfig& model) {
  return RateOf(benches, kTraining, model);
}

bool HasSpeedOf(const Json& bench, const RunData& run) {
  const auto has = [&](const char* title) {
    return std::isfinite(RateOf({bench}, title, run.config));
  };
  return has(kForward) || has(kTraining);
}

std::vector<Chart> TradeoffCharts(const std::vector<RunData>& runs,
                                  const std::vector<Json>& benches) {
  ScatterChart inference{
      "pareto",
      "Perplexity against inference speed",
      "A point for each run: speed of the forward pass and validation "
      "perplexity, labeled with its depth and pattern. Lower and further right is "
      "better.",
      "batches per second",
      "validation perplexity",
      {}};
  ScatterChart training{
      "pareto-training",
      "Perplexity against training speed",
      "A point for each run: training steps per second and validation perplexity.",
      "training steps per second",
      "validation perplexity",
      {}};
  ScatterChart time{"perplexity-time",
                    "Perplexity against training time",
                    "A point for each run: time of the whole training and validation perplexity.",
                    "training time, minutes",
                    "validation perplexity",
                    {}};
  ScatterChart by_dilation{"dilation",
                           "Perplexity against the dilation K",
                           "A point for each run with period 1.",
                           "dilation K",
                           "validation perplexity",
                           {}};
  ScatterChart by_period{
      "period",   "Perplexity against the period P", "A point for each run, by period.",
      "period P", "validation perplexity",           {}};
  for (size_t r = 0; r < runs.size(); ++r) {
    const RunData& run = runs[r];
    const int color = static_cast<int>(r);
    const double perplexity = Perplexity(run);
    const std::string label = Describe(run.config), group = GroupOf(run.config);
    inference.points.push_back(
        {RateOf(benches, kForward, run.config), perplexity, label, group, run.name, color});
    training.points.push_back(
        {RateOf(benches, kTraining, run.config), perplexity, label, group, run.name, color});
    const Json seconds_json =
        run.summary.is_object() ? run.summary.value("seconds", Json()) : Json();
    const double seconds = seconds_json.is_number() ? seconds_json.get<double>() : kNone;
    time.points.push_back({seconds / 60, perplexity, label, group, run.name, color});
    if (const auto sparsity = ParseSparsity(run.config.dwa)) {
      if (sparsity->period == 1) {
        by_dilation.points.push_back({static_cast<double>(sparsity->dilation), perplexity, label,
                                      fmt::format("{} blocks", run.config.n_layer), run.name,
                                      color});
      }
      by_period.points.push_back(
          {static_cast<double>(sparsity->period), perplexity, label,
           fmt::format("{} blocks, K = {}", run.config.n_layer, sparsity->dilation), run.name,
           color});
    }
  }
  std::vector<Chart> charts;
  for (ScatterChart* chart : {&inference, &training, &time, &by_dilation, &by_period})
    AddIfUseful(*chart, charts);
  return charts;
}

}  // namespace denseformer
