// Results of benchmarks as charts.
#ifndef DENSEFORMER_PERF_BENCH_CHART_H_
#define DENSEFORMER_PERF_BENCH_CHART_H_

#include <nlohmann/json.hpp>

#include "chart/chart.h"

namespace denseformer {

// From BenchTable::ToJson. Where the rows have several depths, or several numbers of tokens, and a
// baseline: lines of the cost over the baseline, (time / time of the baseline - 1) * 100 %, against
// depth or else tokens, one for each pattern, with standard errors where the rows have them
// (results of one round have none). Otherwise a bar for each row, its median time in
// milliseconds.
Chart BenchChart(const nlohmann::ordered_json& bench);

}  // namespace denseformer

#endif  // DENSEFORMER_PERF_BENCH_CHART_H_
