// One self-contained HTML page about one or more runs.
#ifndef DENSEFORMER_ANALYSIS_REPORT_H_
#define DENSEFORMER_ANALYSIS_REPORT_H_

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "analysis/run_data.h"
#include "chart/chart.h"

namespace denseformer {

struct Sample {
  std::string run, prompt, text;
};

struct ReportInput {
  std::vector<RunData> runs;
  std::vector<nlohmann::ordered_json> benches;  // results of `bench forward` and `bench train`
  std::vector<Sample> samples;
  int refresh = 0;  // seconds after which the page reloads itself; 0: never
};

// The comparison of the runs (report_table.cc).
std::string ReportCsv(const std::vector<RunData>& runs);
std::string ReportTableHtml(const std::vector<RunData>& runs);
// What the table shows, in words: which run has the lowest loss, and by how much.
std::vector<std::string> ReportSentences(const std::vector<RunData>& runs);
// "section.key" -> value of the run's train.toml.
std::map<std::string, std::string> RunOptions(const RunData& run);
// The options in which the runs differ, and all options of each.
std::string ReportOptionsHtml(const std::vector<RunData>& runs);

// All charts of the report: curves, trade-offs, studies.
std::vector<Chart> ReportCharts(const ReportInput& input);

// No network, no outside files; everything that comes from runs is escaped.
std::string MakeReport(const ReportInput& input);

}  // namespace denseformer

#endif  // DENSEFORMER_ANALYSIS_REPORT_H_
