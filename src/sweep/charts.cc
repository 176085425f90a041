#include "sweep/charts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "analysis/study_tools.h"
#include "analysis/tradeoff.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "sweep/studies.h"

namespace denseformer {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

struct ChartInput {
  const SweepResult& result;
  const SweepChart& chart;
  const std::vector<nlohmann::ordered_json>& benches;
  std::string id;

  // The rows that the chart asks for.
  std::vector<const RowResult*> Rows() const {
    std::vector<const RowResult*> rows;
    for (const RowResult& row : result.rows) {
      const auto& names = chart.rows;
      if (names.empty() || std::find(names.begin(), names.end(), row.row->name) != names.end())
        rows.push_back(&row);
    }
    return rows;
  }
  std::string Title(const std::string& otherwise) const {
    return chart.title.empty() ? otherwise : chart.title;
  }
};

TrainOptions OptionsOf(const RowResult& row) { return row.row->OptionsOf(row.row->seeds.front()); }

// "1x1" of the row's options, without quotes; K and P of the pattern for dilation and period.
std::string OptionText(const RowResult& row, const std::string& key) {
  const TrainOptions options = OptionsOf(row);
  if (key == "dilation" || key == "period") {
    const std::vector<std::string> parts = Split(options.model.dwa, 'x');
    return parts.size() == 2 ? parts[key == "dilation" ? 0 : 1] : "";
  }
  const std::string text = FindOption("chart", key).get(options);
  return text.starts_with("\"") ? text.substr(1, text.size() - 2) : text;
}

double OptionNumber(const RowResult& row, const std::string& key) {
  const std::string text = OptionText(row, key);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return text.empty() || *end != '\0' ? kNone : value;
}

// Learning rates are chosen by factors, however few there are.
bool IsRate(const std::string& key) {
  return key != "dilation" && key != "period" && FindOption("chart", key).key == "optimizer.lr";
}

// Values that grow by factors are told apart on a logarithmic axis.
bool SpansFactors(const LineChart& chart) {
  double low = std::numeric_limits<double>::infinity(), high = 0;
  for (const Series& series : chart.series) {
    for (double x : series.x) {
      low = std::min(low, x);
      high = std::max(high, x);
    }
  }
  return low > 0 && high >= 8 * low;
}

std::vector<Chart> OptionCharts(const ChartInput& input) {
  LineChart chart;
  chart.id = input.id;
  chart.title = input.Title("Validation loss against " + input.chart.x);
  chart.description = fmt::format(
      "Mean validation loss over seeds against {}, with standard errors where there are several.",
      input.chart.x);
  chart.x_label = input.chart.x;
  chart.y_label = "validation loss";
  chart.ticks_at_points = true;
  std::vector<std::string> names;
  std::map<std::string, std::vector<const RowResult*>> groups;
  for (const RowResult* row : input.Rows()) {
    if (row->finished == 0 || std::isnan(OptionNumber(*row, input.chart.x))) continue;
    const std::string name =
        input.chart.series.empty() ? "loss" : OptionText(*row, input.chart.series);
    if (!groups.contains(name)) names.push_back(name);
    groups[name].push_back(row);
  }
  for (const std::string& name : names) {
    std::vector<const RowResult*> rows = groups[name];
    std::stable_sort(rows.begin(), rows.end(), [&](const RowResult* a, const RowResult* b) {
      return OptionNumber(*a, input.chart.x) < OptionNumber(*b, input.chart.x);
    });
    Series series{name, {}, {}};
    for (const RowResult* row : rows) {
      series.x.push_back(OptionNumber(*row, input.chart.x));
      series.y.push_back(row->loss.mean);
      series.errors.push_back(row->loss.standard_error);
    }
    chart.series.push_back(std::move(series));
  }
  if (chart.series.empty()) return {};
  chart.log_x = IsRate(input.chart.x) || SpansFactors(chart);
  return {chart};
}

// A line for inference and one for training.
std::vector<Chart> SpeedCharts(const ChartInput& input) {
  LineChart chart;
  chart.id = input.id;
  chart.title = input.Title("Speed against " + input.chart.x);
  chart.description = fmt::format(
      "Speed of inference and of training against {}, relative to the Transformer of equal depth, "
      "with standard errors.",
      input.chart.x);
  chart.x_label = input.chart.x;
  chart.y_label = "speed relative to the Transformer";
  chart.ticks_at_points = true;
  std::vector<const RowResult*> rows = input.Rows();
  std::erase_if(rows, [&](const RowResult* row) {
    return std::isnan(OptionNumber(*row, input.chart.x)) || OptionsOf(*row).model.gains;
  });
  std::stable_sort(rows.begin(), rows.end(), [&](const RowResult* a, const RowResult* b) {
    return OptionNumber(*a, input.chart.x) < OptionNumber(*b, input.chart.x);
  });
  for (const bool training : {false, true}) {
    Series series{training ? "training" : "inference", {}, {}};
    for (const RowResult* row : rows) {
      const ModelConfig model = OptionsOf(*row).model;
      const MeasuredSpeed speed =
          training ? TrainingSpeed(input.benches, model) : ForwardSpeed(input.benches, model);
      if (!std::isfinite(speed.time_ratio)) continue;
      series.x.push_back(OptionNumber(*row, input.chart.x));
      series.y.push_back(1 / speed.time_ratio);
      series.errors.push_back(speed.time_ratio_error / (speed.time_ratio * speed.time_ratio));
    }
    if (!series.x.empty()) chart.series.push_back(std::move(series));
  }
  if (chart.series.empty()) return {};
  chart.log_x = SpansFactors(chart);
  return {chart};
}

// Mean over the runs of a row of a list that `read` finds in each; empty where no run has one.
Series MeanSeries(
    const RowResult& row,
    const std::function<std::pair<std::vector<double>, std::vector<double>>(const LedgerJson&)>&
        read) {
  std::vector<double> xs;
  std::vector<std::vector<double>> values;  // by place, over runs
  for (const LedgerJson* run : row.runs) {
    if (run == nullptr || (*run)["status"] != "finished") continue;
    const auto [x, y] = read(*run);
    if (xs.empty()) {
      xs = x;
      values.resize(x.size());
    }
    if (x != xs) continue;
    for (size_t i = 0; i < y.size(); ++i) values[i].push_back(y[i]);
  }
  Series series{row.row->name, xs, {}};
  for (const std::vector<double>& place : values) {
    const Estimate estimate = EstimateMean(place);
    series.y.push_back(estimate.mean);
    series.errors.push_back(estimate.standard_error);
  }
  return series;
}

// Where there are several runs.
void ErrorsToBand(Series& series) {
  const bool several = std::all_of(series.errors.begin(), series.errors.end(),
                                   [](double error) { return std::isfinite(error); });
  for (size_t i = 0; several && i < series.y.size(); ++i) {
    series.low.push_back(series.y[i] - series.errors[i]);
    series.high.push_back(series.y[i] + series.errors[i]);
  }
  series.errors.clear();
}

// By step, or by the time that a benchmark gives these steps.
std::vector<Chart> CurveCharts(const ChartInput& input) {
  const bool by_time = input.chart.kind == "time";
  LineChart chart{
      input.id,
      input.Title(by_time ? "Validation loss by training time" : "Validation loss during training"),
      fmt::format("Validation loss on a fixed sample by {}, mean over seeds; the bands are a "
                  "standard error wide on each side.",
                  by_time ? "training time" : "step"),
      by_time ? "training time at the measured speed, s" : "step",
      "validation loss",
      {}};
  for (const RowResult* row : input.Rows()) {
    const ModelConfig model = OptionsOf(*row).model;
    const double rate = by_time && !model.gains ? TrainingRate(input.benches, model) : kNone;
    if (by_time && !(rate > 0)) continue;
    Series series = MeanSeries(*row, [](const LedgerJson& run) {
      const LedgerJson curve = run.value("curve", LedgerJson::object());
      return std::pair(NumbersOf(curve.value("step", LedgerJson::array())),
                       NumbersOf(curve.value("loss", LedgerJson::array())));
    });
    if (series.x.empty()) continue;
    if (by_time) {
      for (double& x : series.x) x /= rate;
    }
    ErrorsToBand(series);
    chart.series.push_back(std::move(series));
  }
  if (chart.series.empty()) return {};
  return {chart};
}

// How a condensed study becomes a line.
struct StudyLine {
  const char *study, *x_key, *y_key;  // x_key null: 0, 1, 2, ...
  const char *title, *x_label, *y_label;
  bool log_y;
};
constexpr StudyLine kStudyLines[] = {
    {"evolution", "steps", "distance", "Distance of the depth weights from the final ones", "step",
     "share of the first distance", false},
    {"evolution", "steps", "older", "Mean size of the weights on older outputs", "step",
     "mean |weight|", false},
    {"cosine", nullptr, "cosine", "Cosine similarity with the embedding", "depth", "cosine", false},
    {"pruning", "percent", "perplexity", "Perplexity after pruning depth weights",
     "pruned weights, %", "perplexity", true},
    {"spectra", nullptr, "q/k/v projection", "Singular values: q/k/v projection", "rank",
     "singular value", false},
    {"spectra", nullptr, "attention output", "Singular values: attention output", "rank",
     "singular value", false},
    {"spectra", nullptr, "MLP up", "Singular values: MLP up", "rank", "singular value", false},
    {"spectra", nullptr, "MLP down", "Singular values: MLP down", "rank", "singular value", false},
    {"spectra", nullptr, "embedding", "Singular values: embedding", "rank", "singular value",
     false}};

std::vector<Chart> StudyLineCharts(const ChartInput& input) {
  std::vector<Chart> charts;
  for (const StudyLine& line : kStudyLines) {
    if (input.chart.kind != line.study) continue;
    LineChart chart{
        fmt::format("{}-{}", input.id, charts.size() + 1),
        line.title,
        fmt::format("{}; mean over seeds with standard errors, a line for each model.", line.title),
        line.x_label,
        line.y_label,
        {},
        line.log_y};
    for (const RowResult* row : input.Rows()) {
      Series series = MeanSeries(*row, [&line](const LedgerJson& run) {
        const LedgerJson studies = run.value("studies", LedgerJson::object());
        if (!studies.contains(line.study) || !studies[line.study].contains(line.y_key))
          return std::pair<std::vector<double>, std::vector<double>>();
        const LedgerJson& study = studies[line.study];
        const std::vector<double> y = NumbersOf(study[line.y_key]);
        std::vector<double> x(y.size());
        for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i);
        if (line.x_key != nullptr) x = NumbersOf(study[line.x_key]);
        return std::pair(x, y);
      });
      // Whiskers at dozens of neighbors would hide the lines.
      if (series.x.size() > 20) ErrorsToBand(series);
      if (!series.x.empty()) chart.series.push_back(std::move(series));
    }
    if (!chart.series.empty()) charts.push_back(chart);
  }
  return charts;
}

std::vector<Chart> WeightCharts(const ChartInput& input) {
  std::vector<Chart> charts;
  for (const RowResult* row : input.Rows()) {
    std::vector<std::vector<std::vector<double>>> matrices;
    for (const LedgerJson* run : row->runs) {
      if (run == nullptr) continue;
      const LedgerJson studies = run->value("studies", LedgerJson::object());
      if (studies.contains("weights")) matrices.push_back(WeightMatrix(studies["weights"]));
    }
    if (matrices.empty()) continue;
    std::vector<std::vector<double>> means = matrices.front(), errors = matrices.front();
    for (size_t i = 0; i < means.size(); ++i) {
      for (size_t j = 0; j < means.size(); ++j) {
        std::vector<double> values;
        for (const auto& matrix : matrices) values.push_back(matrix[i][j]);
        const Estimate estimate = EstimateMean(values);
        means[i][j] = estimate.mean;
        errors[i][j] = estimate.standard_error;
      }
    }
    HeatMap map = SourceMap(fmt::format("{}-{}", input.id, charts.size() + 1),
                            fmt::format("Depth weights: {}, mean of {} run{}", row->row->name,
                                        matrices.size(), matrices.size() == 1 ? "" : "s"),
                            std::move(means));
    map.description =
        "Heat map of the weights of the depth-weighted averages, mean over seeds: a row for each "
        "module, a column for each output that it reads, 0 for the embedding.";
    if (matrices.size() > 1) map.errors = std::move(errors);
    charts.push_back(map);
  }
  return charts;
}

std::vector<Chart> ParetoCharts(const ChartInput& input) {
  const bool training = input.chart.kind == "pareto-training";
  ScatterChart chart{
      input.id,
      input.Title(training ? "Perplexity against training speed"
                           : "Perplexity against inference speed"),
      "A point for each model: speed and mean validation perplexity, with the number "
      "of blocks beside it. Lower and further right is better.",
      training ? "training steps per second" : "batches per second",
      "validation perplexity",
      {}};
  for (const RowResult* row : input.Rows()) {
    const ModelConfig model = OptionsOf(*row).model;
    const double rate =
        training ? TrainingRate(input.benches, model) : ForwardRate(input.benches, model);
    if (row->finished == 0 || std::isnan(rate)) continue;
    const std::string group = model.dwa != "none" ? "DenseFormer " + model.dwa
                              : model.gains       ? "Skips with gains"
                                                  : "Transformer";
    chart.points.push_back(
        {rate, row->perplexity.mean, std::to_string(model.n_layer), group, row->row->name});
  }
  if (chart.points.size() < 2) return {};
  return {chart};
}

struct ChartKind {
  const char* name;
  std::vector<Chart> (*draw)(const ChartInput& input);
};
constexpr ChartKind kKinds[] = {
    {"option", OptionCharts},     {"speed", SpeedCharts},         {"time", CurveCharts},
    {"curves", CurveCharts},      {"pareto", ParetoCharts},       {"pareto-training", ParetoCharts},
    {"weights", WeightCharts},    {"evolution", StudyLineCharts}, {"cosine", StudyLineCharts},
    {"pruning", StudyLineCharts}, {"spectra", StudyLineCharts}};

}  // namespace

void CheckChart(const SweepChart& chart, const std::string& where) {
  std::vector<std::string> names;
  for (const ChartKind& kind : kKinds) names.emplace_back(kind.name);
  if (std::find(names.begin(), names.end(), chart.kind) == names.end()) {
    Throw(ErrorCode::kInvalid, "{}: got chart kind '{}'{}, expected one of {}", where,
          Printable(chart.kind), DidYouMean(chart.kind, names), Join(names, ", "));
  }
  const bool speed = chart.kind == "speed";
  if (!chart.series.empty() && chart.kind != "option")
    Throw(ErrorCode::kInvalid, "{}: series belongs to charts of kind option", where);
  if (chart.kind != "option" && !speed) {
    if (chart.x.empty()) return;
    Throw(ErrorCode::kInvalid, "{}: x belongs to charts of kinds option and speed", where);
  }
  if (chart.x.empty())
    Throw(ErrorCode::kInvalid, "{}: a chart of kind {} needs x", where, chart.kind);
  for (const std::string& key : {chart.x, chart.series}) {
    if (!key.empty() && key != "dilation" && key != "period") FindOption(where, key);
  }
}

std::vector<Chart> SweepCharts(const SweepResult& result,
                               const std::vector<nlohmann::ordered_json>& benches) {
  std::vector<Chart> charts;
  std::map<std::string, int> uses;  // of a kind
  for (const SweepChart& chart : result.file->charts) {
    const int use = ++uses[chart.kind];
    std::string id = result.file->id + "-" + chart.kind;
    if (use > 1) id += fmt::format("-{}", use);
    for (const ChartKind& kind : kKinds) {
      if (chart.kind != kind.name) continue;
      for (Chart& drawn : kind.draw({result, chart, benches, id}))
        charts.push_back(std::move(drawn));
    }
  }
  return charts;
}

}  // namespace denseformer
