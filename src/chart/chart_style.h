// The style sheet of every drawing, from chart.css.
#ifndef DENSEFORMER_CHART_CHART_STYLE_H_
#define DENSEFORMER_CHART_CHART_STYLE_H_

#include <string_view>

namespace denseformer {

extern const std::string_view kChartStyle;

}  // namespace denseformer

#endif  // DENSEFORMER_CHART_CHART_STYLE_H_
