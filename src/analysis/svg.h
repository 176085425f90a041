// What the drawings share: scales, ticks, axes, escaping.
#ifndef DENSEFORMER_ANALYSIS_SVG_H_
#define DENSEFORMER_ANALYSIS_SVG_H_

#include <string>
#include <string_view>
#include <vector>

#include "analysis/chart.h"

namespace denseformer {

// Safe inside HTML and XML text and attributes; bytes that XML forbids are dropped.
std::string EscapeXml(std::string_view text);

// A number for a person: at most four significant digits.
std::string ShortNumber(double value);

// Round numbers that divide [low, high] into about `count` parts.
std::vector<double> NiceTicks(double low, double high, int count);

// Maps [low, high] (or its logarithm) to [from, to] in pixels.
struct Scale {
  double low = 0, high = 1, from = 0, to = 1;
  bool log = false;
  double operator()(double value) const;
};

// A scale with a little room around the finite values; for no values [0, 1].
Scale FitScale(const std::vector<double>& values, double from, double to, bool log);

inline constexpr double kChartWidth = 720, kChartHeight = 400;
inline constexpr double kLeft = 66, kRight = 16, kTop = 40, kBottom = 52;

// Opens <svg> with title and description; DrawSvg closes it.
std::string SvgOpen(std::string_view kind, const std::string& id, const std::string& title,
                    const std::string& description, double width, double height, bool standalone);

// Grid, ticks, and labels of both axes.
std::string SvgAxes(const Scale& x, const Scale& y, const std::string& x_label,
                    const std::string& y_label);

// A CSS class for the n-th series: eight colours that colour-blind people can tell apart.
std::string SeriesClass(size_t n);

std::string DrawLines(const LineChart& chart, bool standalone);
std::string DrawHeatMap(const HeatMap& chart, bool standalone);
std::string DrawScatter(const ScatterChart& chart, bool standalone);
std::string DrawBars(const BarChart& chart, bool standalone);

// The style sheet of the drawings.
std::string_view ChartStyle();

}  // namespace denseformer

#endif  // DENSEFORMER_ANALYSIS_SVG_H_
