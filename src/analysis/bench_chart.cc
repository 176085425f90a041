#include "analysis/bench_chart.h"

#include <algorithm>
#include <optional>

#include "base/text.h"

namespace denseformer {
namespace {

using Json = nlohmann::ordered_json;

// "48 blocks, 4x5"
struct RowName {
  double depth = 0;
  std::string pattern;
};
std::optional<RowName> ParseName(const std::string& name) {
  constexpr std::string_view kWord = " blocks, ";
  const size_t at = name.find(kWord);
  const bool digits = at != std::string::npos && at > 0 && at < 6 &&
                      std::all_of(name.begin(), name.begin() + static_cast<std::ptrdiff_t>(at),
                                  [](char c) { return c >= '0' && c <= '9'; });
  if (!digits) return std::nullopt;
  return RowName{std::stod(name.substr(0, at)), name.substr(at + kWord.size())};
}

std::string Settings(const Json& bench) {
  const Json settings = bench.value("settings", Json::object());
  std::vector<std::string> parts;
  for (const auto& [key, value] : settings.items())
    parts.push_back(key + " " + value.get<std::string>());
  return Join(parts, ", ");
}

// A line for each pattern but the baseline; none where the rows have fewer than two depths.
LineChart CostByDepth(const Json& bench) {
  LineChart chart{
      "bench-depths",
      "Cost against depth: " + bench.at("title").get<std::string>(),
      "Time over the time of the baseline at the same depth, less 1. " + Settings(bench),
      "blocks",
      "cost over the baseline, %",
      {},
      /*log_y=*/false,
      /*from_zero=*/true};
  std::vector<double> depths;
  for (const Json& row : bench.at("rows")) {
    const std::optional<RowName> name = ParseName(row.at("name"));
    if (!name || !row.contains("ratio_of_medians") || row.at("baseline") == row.at("name"))
      continue;
    auto series = std::find_if(chart.series.begin(), chart.series.end(),
                               [&](const Series& s) { return s.name == name->pattern; });
    if (series == chart.series.end())
      series = chart.series.insert(series, Series{name->pattern, {}, {}});
    series->x.push_back(name->depth);
    series->y.push_back(100 * (row.at("ratio_of_medians").get<double>() - 1));
    if (std::find(depths.begin(), depths.end(), name->depth) == depths.end())
      depths.push_back(name->depth);
  }
  if (depths.size() < 2) chart.series.clear();
  return chart;
}

}  // namespace

Chart BenchChart(const Json& bench) {
  LineChart cost = CostByDepth(bench);
  if (!cost.series.empty()) return cost;
  const std::string title = bench.at("title");
  BarChart bars{
      "bench", title, "Median time of each variant. " + Settings(bench), "median time, ms", {}};
  for (const Json& row : bench.at("rows"))
    bars.bars.emplace_back(row.at("name"), 1e3 * row.at("median_seconds").get<double>());
  return bars;
}

}  // namespace denseformer
