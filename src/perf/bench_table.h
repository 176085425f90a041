// The result of a benchmark: one row a variant, as text for people and as JSON for programs.
#ifndef DENSEFORMER_PERF_BENCH_TABLE_H_
#define DENSEFORMER_PERF_BENCH_TABLE_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "perf/interleave.h"

namespace denseformer {

// What a row of a whole pass measured.
struct BenchPoint {
  int blocks = 0;
  int64_t tokens = 0;   // of a batch
  std::string pattern;  // of depth; empty: the limit
  bool recompute = false;
};

struct BenchRow {
  Timing timing;
  double work = 0;        // units of work in one call; 0: the row has no rate
  std::string unit;       // "tokens"
  int baseline = -1;      // the row that ratios of time are taken to; -1: none
  int limit = -1;         // the row that is the machine's limit; -1: none
  double limit_work = 1;  // work of this row over the work of the limit's row
  int64_t sequences = 0;  // that share the work; 0: not told
  int64_t context = 0;    // tokens of each of them, with `sequences`
  int64_t memory = 0;     // bytes that a process with this work alone takes; 0: not told
  std::optional<BenchPoint> point;
};

struct BenchTable {
  std::string title;
  std::vector<std::pair<std::string, std::string>> settings;
  std::vector<BenchRow> rows;

  // Ratios of medians and of minima to the baseline: time of the row over time of the baseline.
  MedianRatio RatioOfMedians(const BenchRow& row) const;
  double RatioOfMinima(const BenchRow& row) const;
  // Share of the limit that the row reaches: time of the limit over time of the row.
  double LimitShare(const BenchRow& row) const;  // by medians
  double LimitShareOfMinima(const BenchRow& row) const;

  std::string ToText() const;
  nlohmann::ordered_json ToJson() const;
};

// Rows from timings, in their order; `work` units of `unit` each.
BenchTable MakeTable(std::string title, const std::vector<Timing>& timings, double work,
                     std::string unit);

}  // namespace denseformer

#endif  // DENSEFORMER_PERF_BENCH_TABLE_H_
