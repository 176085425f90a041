#include "analysis/report_curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/report.h"

namespace denseformer {
namespace {

// Points per curve in the page: what zooming in can show.
constexpr size_t kStoredPoints = 1000;

struct Quantity {
  const char* key;
  const char* title;
  const char* description;
  const char* y_label;
  const char* count_word;
  bool smoothable;
  Curve RunData::*curve;
};
constexpr Quantity kQuantities[] = {
    {"train", "Training loss", "Training loss, one line per run; long curves show means.", "loss",
     "logged steps", true, &RunData::train_loss},
    {"validation", "Validation loss", "Validation loss during training, one line per run.", "loss",
     "validations", false, &RunData::validation_loss},
    {"gradient", "Gradient norm", "Norm of the gradient before clipping, one line per run.",
     "gradient norm", "logged steps", true, &RunData::gradient_norm},
    {"throughput", "Throughput", "Training tokens per second, one line per run.",
     "tokens per second", "logged steps", true, &RunData::throughput},
    {"rate", "Learning rate", "Learning rate, one line per run.", "learning rate", "logged steps",
     false, &RunData::learning_rate},
};

Series SeriesOf(const RunData& run, size_t position, const Quantity& quantity,
                const CurveAxis& axis) {
  const Curve& curve = run.*quantity.curve;
  Series series;
  series.name = run.name;
  series.color = static_cast<int>(position);
  series.x = curve.*axis.values;
  series.y = curve.value;
  series.counts.assign(series.x.size(), 1);
  return Averaged(series, kStoredPoints);
}

// y of a series at x, linear between its points; NaN outside of them.
double ValueAt(const Series& series, double x) {
  const auto after = std::lower_bound(series.x.begin(), series.x.end(), x);
  if (after == series.x.end()) return NAN;
  const size_t i = static_cast<size_t>(after - series.x.begin());
  if (*after == x) return series.y[i];
  if (i == 0) return NAN;
  const double part = (x - series.x[i - 1]) / (series.x[i] - series.x[i - 1]);
  return series.y[i - 1] + part * (series.y[i] - series.y[i - 1]);
}

// Mean, lowest and highest of the members, at the points of the first.
Series BandOf(const std::vector<const Series*>& members, const std::string& name, int group) {
  Series band;
  band.name = name;
  band.color = members.front()->color;
  band.group = group;
  for (const double x : members.front()->x) {
    double sum = 0, low = INFINITY, high = -INFINITY;
    for (const Series* member : members) {
      const double value = ValueAt(*member, x);
      sum += value;
      low = std::min(low, value);
      high = std::max(high, value);
    }
    if (!std::isfinite(sum)) continue;
    band.x.push_back(x);
    band.y.push_back(sum / static_cast<double>(members.size()));
    band.low.push_back(low);
    band.high.push_back(high);
  }
  return band;
}

void AddBands(const std::vector<RunData>& runs, LineChart& chart) {
  const std::vector<std::vector<size_t>> groups = SeedGroups(runs);
  for (size_t g = 0; g < groups.size(); ++g) {
    std::vector<const Series*> members;
    for (const size_t run : groups[g]) {
      if (!chart.series[run].x.empty()) members.push_back(&chart.series[run]);
    }
    if (members.size() < 2) continue;
    const Series band =
        BandOf(members,
               fmt::format("{}, mean of {} seeds", Describe(runs[groups[g].front()].config),
                           members.size()),
               static_cast<int>(g));
    if (band.x.empty()) continue;
    for (const size_t run : groups[g]) chart.series[run].group = static_cast<int>(g);
    chart.series.push_back(band);
  }
}

// The loss of every run minus that of the first at the same place of the axis: differences that the
// curves themselves do not show.
LineChart DifferenceChart(const LineChart& validation, size_t runs, const CurveAxis& axis) {
  const Series& first = validation.series.front();
  LineChart chart;
  chart.id = fmt::format("difference-{}", axis.key);
  chart.title = fmt::format("Validation loss minus that of {}", first.name);
  chart.description = fmt::format(
      "Validation loss of each run minus the loss of {} at the same place; below 0 is better.",
      first.name);
  chart.x_label = axis.label;
  chart.y_label = "difference in loss";
  chart.shared_legend = true;
  for (size_t run = 0; run < runs; ++run) {
    const Series& series = validation.series[run];
    Series difference{series.name, {}, {}, series.color};
    for (size_t i = 0; i < series.x.size(); ++i) {
      const double base = ValueAt(first, series.x[i]);
      if (std::isnan(base)) continue;
      difference.x.push_back(series.x[i]);
      difference.y.push_back(series.y[i] - base);
    }
    chart.series.push_back(std::move(difference));
  }
  return chart;
}

}  // namespace

std::span<const CurveAxis> CurveAxes() {
  static constexpr CurveAxis kAxes[] = {{"steps", "step", &Curve::step},
                                        {"tokens", "tokens", &Curve::tokens},
                                        {"time", "seconds of training", &Curve::seconds}};
  return kAxes;
}

std::vector<Chart> CurveCharts(const std::vector<RunData>& runs, const CurveAxis& axis) {
  std::vector<Chart> charts;
  for (const Quantity& quantity : kQuantities) {
    LineChart chart;
    chart.id = fmt::format("{}-{}", quantity.key, axis.key);
    chart.title = quantity.title;
    chart.description = quantity.description;
    chart.x_label = axis.label;
    chart.y_label = quantity.y_label;
    chart.shared_legend = true;
    chart.smoothable = quantity.smoothable;
    chart.count_word = quantity.count_word;
    for (size_t r = 0; r < runs.size(); ++r)
      chart.series.push_back(SeriesOf(runs[r], r, quantity, axis));
    if (std::all_of(chart.series.begin(), chart.series.end(),
                    [](const Series& series) { return series.x.empty(); })) {
      continue;
    }
    AddBands(runs, chart);
    charts.push_back(chart);
    if (quantity.curve == &RunData::validation_loss && runs.size() > 1 &&
        !chart.series.front().x.empty()) {
      charts.push_back(DifferenceChart(chart, runs.size(), axis));
    }
  }
  return charts;
}

std::vector<std::vector<size_t>> SeedGroups(const std::vector<RunData>& runs) {
  std::map<std::string, std::vector<size_t>> by_options;
  std::vector<std::string> order;
  for (size_t r = 0; r < runs.size(); ++r) {
    std::string key;
    for (const auto& [name, value] : RunOptions(runs[r])) {
      if (name != "train.seed") key += name + "=" + value + "\n";
    }
    if (key.empty()) continue;  // its options are not known
    if (by_options[key].empty()) order.push_back(key);
    by_options[key].push_back(r);
  }
  std::vector<std::vector<size_t>> groups;
  for (const std::string& key : order) {
    if (by_options[key].size() > 1) groups.push_back(by_options[key]);
  }
  return groups;
}

}  // namespace denseformer
