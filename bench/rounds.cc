#include "rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace denseformer {
namespace {

double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

}  // namespace

void Rounds::Add(std::string name, std::function<void()> run, double bytes, double flops) {
  variants_.push_back({std::move(name), std::move(run), bytes, flops, {}});
}

void Rounds::Run(int rounds) {
  for (int round = -1; round < rounds; ++round) {
    for (Variant& variant : variants_) {
      const auto start = std::chrono::steady_clock::now();
      variant.run();
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      if (round >= 0) variant.seconds.push_back(taken.count());
    }
  }
}

nlohmann::json Rounds::ToJson() const {
  nlohmann::json rows = nlohmann::json::array();
  for (const Variant& variant : variants_) {
    const std::vector<double>& first = variants_.front().seconds;
    const double low = Quantile(variant.seconds, 0), median = Quantile(variant.seconds, 0.5);
    nlohmann::json row = {{"name", variant.name},
                          {"rounds", variant.seconds.size()},
                          {"median_s", median},
                          {"min_s", low},
                          {"p90_s", Quantile(variant.seconds, 0.9)},
                          {"median_ratio", median / Quantile(first, 0.5)},
                          {"min_ratio", low / Quantile(first, 0)}};
    if (variant.bytes > 0) row["gb_per_s"] = variant.bytes / low * 1e-9;
    if (variant.flops > 0) row["gflop_per_s"] = variant.flops / low * 1e-9;
    rows.push_back(std::move(row));
  }
  return rows;
}

void Rounds::PrintTable() const {
  fmt::print("{:36} {:>10} {:>10} {:>10} {:>8} {:>8} {:>9}\n", "variant", "median ms", "min ms",
             "p90 ms", "median", "min", "GB/s");
  for (const nlohmann::json& row : ToJson()) {
    fmt::print("{:36} {:10.3f} {:10.3f} {:10.3f} {:8.3f} {:8.3f} {:>9}\n",
               row["name"].get<std::string>(), 1e3 * row["median_s"].get<double>(),
               1e3 * row["min_s"].get<double>(), 1e3 * row["p90_s"].get<double>(),
               row["median_ratio"].get<double>(), row["min_ratio"].get<double>(),
               row.contains("gb_per_s") ? fmt::format("{:.1f}", row["gb_per_s"].get<double>())
                                        : std::string("-"));
  }
}

}  // namespace denseformer
