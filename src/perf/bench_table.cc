#include "perf/bench_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace denseformer {
namespace {

constexpr int kBarWidth = 24;

std::string Milliseconds(double seconds) { return fmt::format("{:.3f}", seconds * 1e3); }

}  // namespace

MedianRatio BenchTable::RatioOfMedians(const BenchRow& row) const {
  return denseformer::RatioOfMedians(row.timing, rows[row.baseline].timing);
}

double BenchTable::RatioOfMinima(const BenchRow& row) const {
  return row.timing.minimum() / rows[row.baseline].timing.minimum();
}

double BenchTable::LimitShare(const BenchRow& row) const {
  return rows[row.limit].timing.median() * row.limit_work / row.timing.median();
}

double BenchTable::LimitShareOfMinima(const BenchRow& row) const {
  return rows[row.limit].timing.minimum() * row.limit_work / row.timing.minimum();
}

std::string BenchTable::ToText() const {
  std::string text = title + "\n";
  for (const auto& [key, value] : settings) text += fmt::format("  {}: {}\n", key, value);
  size_t width = 7;
  double slowest = 0;
  bool memory = false, sequences = false;
  for (const BenchRow& row : rows) {
    memory |= row.memory > 0;
    sequences |= row.sequences > 0;
    width = std::max(width, row.timing.name.size());
    slowest = std::max(slowest, row.timing.median());
  }
  const auto cell = [](bool shown, const std::string& value, int columns) {
    return shown ? fmt::format(" {:>{}}", value, columns) : std::string();
  };
  text += fmt::format("  {:<{}} {:>10} {:>10} {:>7} {:>16}{} {:>20} {:>13}{}\n", "variant", width,
                      "median ms", "min ms", "spread", "rate", cell(sequences, "per sequence", 16),
                      "ratio med/min", "of the limit", cell(memory, "memory", 10));
  for (const BenchRow& row : rows) {
    const Timing& t = row.timing;
    std::string rate, each, ratio, share;
    if (row.sequences > 0) {
      each = HumanRate(row.work / static_cast<double>(row.sequences) / t.median(), row.unit + "/s");
    }
    if (row.work > 0) rate = HumanRate(row.work / t.median(), row.unit + "/s");
    if (row.baseline >= 0) {
      const MedianRatio of_medians = RatioOfMedians(row);
      const std::string error =
          of_medians.error > 0 ? fmt::format(" ±{:.3f}", of_medians.error) : std::string();
      ratio = fmt::format("{:.3f}{} / {:.3f}", of_medians.value, error, RatioOfMinima(row));
    }
    if (row.limit >= 0)
      share =
          fmt::format("{:.0f}% / {:.0f}%", 100 * LimitShare(row), 100 * LimitShareOfMinima(row));
    std::string bar;
    for (int i = 0; i < static_cast<int>(t.median() / slowest * kBarWidth + 0.5); ++i) bar += "▇";
    const std::string bytes =
        row.memory > 0 ? HumanBytes(static_cast<double>(row.memory)) : std::string();
    text +=
        fmt::format("  {:<{}} {:>10} {:>10} {:>6.1f}% {:>16}{} {:>20} {:>13}{}  {}\n", t.name,
                    width, Milliseconds(t.median()), Milliseconds(t.minimum()), 100 * t.spread(),
                    rate, cell(sequences, each, 16), ratio, share, cell(memory, bytes, 10), bar);
  }
  return text;
}

nlohmann::ordered_json BenchTable::ToJson() const {
  nlohmann::ordered_json json = {{"title", title}};
  for (const auto& [key, value] : settings) json["settings"][key] = value;
  json["rows"] = nlohmann::ordered_json::array();
  for (const BenchRow& row : rows) {
    const Timing& t = row.timing;
    nlohmann::ordered_json entry = {{"name", t.name},
                                    {"median_seconds", t.median()},
                                    {"minimum_seconds", t.minimum()},
                                    {"spread", t.spread()},
                                    {"rounds", t.seconds.size()}};
    if (row.point) {
      entry["blocks"] = row.point->blocks;
      entry["tokens"] = row.point->tokens;
      if (!row.point->pattern.empty()) entry["pattern"] = row.point->pattern;
      if (row.point->recompute) entry["recompute"] = true;
    }
    if (row.work > 0) entry[row.unit + "_per_second"] = row.work / t.median();
    if (row.sequences > 0) {
      entry["sequences"] = row.sequences;
      entry["context"] = row.context;
      entry[row.unit + "_per_second_per_sequence"] =
          row.work / static_cast<double>(row.sequences) / t.median();
    }
    if (row.baseline >= 0) {
      entry["baseline"] = rows[row.baseline].timing.name;
      const MedianRatio ratio = RatioOfMedians(row);
      entry["ratio_of_medians"] = ratio.value;
      entry["ratio_error"] = ratio.error;
      entry["ratio_of_minima"] = RatioOfMinima(row);
    }
    if (row.limit >= 0) {
      entry["limit"] = rows[row.limit].timing.name;
      entry["share_of_limit"] = LimitShare(row);
      entry["share_of_limit_minima"] = LimitShareOfMinima(row);
    }
    if (row.memory > 0) entry["memory_bytes"] = row.memory;
    json["rows"].push_back(entry);
  }
  return json;
}

BenchTable MakeTable(std::string title, const std::vector<Timing>& timings, double work,
                     std::string unit) {
  BenchTable table;
  table.title = std::move(title);
  for (const Timing& timing : timings) {
    BenchRow& row = table.rows.emplace_back();
    row.timing = timing;
    row.work = work;
    row.unit = unit;
  }
  return table;
}

}  // namespace denseformer
