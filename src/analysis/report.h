// One self-contained HTML page about one or more runs.
#ifndef DENSEFORMER_ANALYSIS_REPORT_H_
#define DENSEFORMER_ANALYSIS_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "analysis/chart.h"
#include "analysis/run_data.h"

namespace denseformer {

struct Sample {
  std::string run, prompt, text;
};

struct ReportInput {
  std::vector<RunData> runs;
  std::vector<nlohmann::ordered_json> benches;  // results of `bench forward` and `bench train`
  std::vector<Sample> samples;
};

// A row of the comparison table; empty strings where the run does not say.
struct ReportRow {
  std::string name, model, parameters, dwa_weights, steps, tokens, loss, perplexity, accuracy,
      bits_per_byte, rate, time;
};
std::vector<ReportRow> ReportTable(const std::vector<RunData>& runs);
std::string ReportCsv(const std::vector<ReportRow>& rows);

// All charts of the report: curves, trade-offs, studies.
std::vector<Chart> ReportCharts(const ReportInput& input);

// No network, no outside files; everything that comes from runs is escaped.
std::string MakeReport(const ReportInput& input);

}  // namespace denseformer

#endif  // DENSEFORMER_ANALYSIS_REPORT_H_
