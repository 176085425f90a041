// What the drawings share: scales, ticks, axes, escaping.
#ifndef DENSEFORMER_CHART_SVG_H_
#define DENSEFORMER_CHART_SVG_H_

#include <string>
#include <string_view>
#include <vector>

#include "chart/chart.h"

namespace denseformer {

// Safe inside HTML and XML text and attributes: the five special characters become entities, what
// XML forbids is dropped, and bytes that are not UTF-8 become U+FFFD.
std::string EscapeXml(std::string_view text);

// A number for a person: four significant digits, whole from 1,000 on ("0.1235", "12,346",
// "2e-05").
std::string ShortNumber(double value);
// The same for an axis: "20k", "1.5M", "1e-5".
std::string TickLabel(double value);

// "X₁₂"
std::string SourceName(int source);

// Round numbers that divide [low, high] into about `count` parts.
std::vector<double> NiceTicks(double low, double high, int count);

// Maps [low, high] (or its logarithm) to [from, to] in pixels.
struct Scale {
  double low = 0, high = 1, from = 0, to = 1;
  bool log = false;
  std::vector<double> ticks = {};  // instead of round numbers; ascending
  double operator()(double value) const;
  // Those above, or about `count` round numbers; on a logarithmic scale powers of ten, with 2 and 5
  // between them where there is room.
  std::vector<double> Ticks(int count) const;
};

// A scale with a little room around the finite values; for no values [0, 1].
Scale FitScale(const std::vector<double>& values, double from, double to, bool log);

inline constexpr double kChartWidth = 480;
inline constexpr double kLeft = 60, kRight = 14, kBottom = 46;
inline constexpr double kPlotHeight = 240;
inline constexpr double kLegendRow = 18;

// Where the plot begins: below the label of the y axis and the title, where the drawing has one.
constexpr double PlotTop(bool standalone) { return standalone ? 56 : 26; }

// Room below the axes for the legend of a drawing that stands alone.
double LegendHeight(const std::vector<LegendEntry>& legend, bool standalone);
std::string SvgLegend(const std::vector<LegendEntry>& legend, double top);

// Opens <svg> with title and description; DrawSvg closes it.
std::string SvgOpen(std::string_view kind, const std::string& id, const std::string& title,
                    const std::string& description, double height, bool standalone,
                    double width = kChartWidth);

// Grid, ticks, and labels of both axes.
std::string SvgAxes(const Scale& x, const Scale& y, const std::string& x_label,
                    const std::string& y_label);

// The labels of the axes alone; the plot reaches from (left, top) to (right, bottom).
std::string SvgAxisLabels(double left, double right, double top, double bottom,
                          const std::string& x_label, const std::string& y_label);

// CSS classes of the n-th series: eight colors that color-blind people can tell apart, then the
// same with dashes.
std::string SeriesClass(size_t n);
size_t SeriesColor(const LineChart& chart, size_t n);
size_t PointColor(const ScatterChart& chart, size_t n);

// Points of a line that can be told apart.
inline constexpr size_t kMostPoints = 150;

std::string DrawLines(const LineChart& chart, bool standalone);
std::string DrawHeatMap(const HeatMap& chart, bool standalone);
std::string DrawScatter(const ScatterChart& chart, bool standalone);
std::string DrawBars(const BarChart& chart, bool standalone);
std::string DrawTimeline(const TimelineChart& chart, bool standalone);

// The groups of the points in the order in which they first occur.
std::vector<std::string> ScatterGroups(const ScatterChart& chart);

// `text` cut to about `width` pixels.
std::string Shortened(const std::string& text, double width);

}  // namespace denseformer

#endif  // DENSEFORMER_CHART_SVG_H_
