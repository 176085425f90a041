// Style sheets and script, from chart.css, report.css and report.js.
#ifndef DENSEFORMER_ANALYSIS_REPORT_ASSETS_H_
#define DENSEFORMER_ANALYSIS_REPORT_ASSETS_H_

#include <string_view>

namespace denseformer {

extern const std::string_view kChartStyle;   // of every drawing
extern const std::string_view kReportStyle;  // of the page
extern const std::string_view kReportScript;

}  // namespace denseformer

#endif  // DENSEFORMER_ANALYSIS_REPORT_ASSETS_H_
