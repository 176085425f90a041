#include "perf/bench_chart.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace denseformer {
namespace {

using Json = nlohmann::ordered_json;

std::string Settings(const Json& bench) {
  const Json settings = bench.value("settings", Json::object());
  std::vector<std::string> parts;
  for (const auto& [key, value] : settings.items())
    parts.push_back(key + " " + value.get<std::string>());
  return Join(parts, ", ");
}

// What a cost may be drawn against.
struct Axis {
  const char* id;
  const char* against;
  const char* key;  // of a row
  const char* label;
};
constexpr Axis kAxes[] = {{"bench-depths", "depth", "blocks", "blocks"},
                          {"bench-tokens", "tokens", "tokens", "tokens in a batch"}};

bool ComparedToAnother(const Json& row) {
  return row.contains("pattern") && row.contains("ratio_of_medians") &&
         row.at("baseline") != row.at("name");
}

std::vector<double> Distinct(const Json& rows, const char* key) {
  std::vector<double> values;
  for (const Json& row : rows) {
    if (ComparedToAnother(row)) values.push_back(row.at(key));
  }
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

// The name of the line that a row belongs to: all that tells it from the baseline and the other
// lines, "4x5" or "4x5, 2048 tokens in a batch".
std::string LineName(const Json& bench, const Json& row, const Axis& axis) {
  std::string name = row.at("pattern");
  if (row.contains("recompute")) name += ", recompute";
  for (const Axis& other : kAxes) {
    if (&other != &axis && Distinct(bench.at("rows"), other.key).size() > 1)
      name += fmt::format(", {} {}", row.at(other.key).get<int64_t>(), other.label);
  }
  return name;
}

// A line for each pattern but the baseline.
LineChart CostChart(const Json& bench, const Axis& axis) {
  LineChart chart{
      axis.id,
      fmt::format("Cost against {}: {}", axis.against, bench.at("title").get<std::string>()),
      fmt::format("Time over the time of the baseline at the same {}, less 1. {}", axis.label,
                  Settings(bench)),
      axis.label,
      "cost over the baseline, %",
      {},
      /*log_y=*/false,
      /*from_zero=*/true,
      /*ticks_at_points=*/true};
  bool errors = false;
  for (const Json& row : bench.at("rows")) {
    if (!ComparedToAnother(row)) continue;
    const std::string name = LineName(bench, row, axis);
    auto series = std::find_if(chart.series.begin(), chart.series.end(),
                               [&](const Series& s) { return s.name == name; });
    if (series == chart.series.end()) series = chart.series.insert(series, Series{name, {}, {}});
    series->x.push_back(row.at(axis.key));
    series->y.push_back(100 * (row.at("ratio_of_medians").get<double>() - 1));
    series->errors.push_back(100 * row.value("ratio_error", 0.0));
    errors |= series->errors.back() > 0;
  }
  if (errors) chart.y_label += "; whiskers: standard error";
  return chart;
}

}  // namespace

Chart BenchChart(const Json& bench) {
  for (const Axis& axis : kAxes) {
    if (Distinct(bench.at("rows"), axis.key).size() > 1) return CostChart(bench, axis);
  }
  const std::string title = bench.at("title");
  BarChart bars{
      "bench", title, "Median time of each variant. " + Settings(bench), "median time, ms", {}};
  for (const Json& row : bench.at("rows"))
    bars.bars.emplace_back(row.at("name"), 1e3 * row.at("median_seconds").get<double>());
  return bars;
}

}  // namespace denseformer
