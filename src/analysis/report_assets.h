// Style sheet and script of the page, from report.css and report.js.
#ifndef DENSEFORMER_ANALYSIS_REPORT_ASSETS_H_
#define DENSEFORMER_ANALYSIS_REPORT_ASSETS_H_

#include <string_view>

namespace denseformer {

extern const std::string_view kReportStyle;
extern const std::string_view kReportScript;

}  // namespace denseformer

#endif  // DENSEFORMER_ANALYSIS_REPORT_ASSETS_H_
