#include <fmt/format.h>

#include <cmath>

#include "analysis/svg.h"

namespace denseformer {
namespace {

// A path through the finite points; a gap where a value is missing, a dot for a point alone.
std::string Path(const Series& series, const Scale& x, const Scale& y) {
  const auto shown = [&](size_t i) {
    return i < series.x.size() && i < series.y.size() && std::isfinite(series.x[i]) &&
           std::isfinite(series.y[i]) && (!y.log || series.y[i] > 0);
  };
  std::string path;
  for (size_t i = 0; i < series.x.size(); ++i) {
    if (!shown(i)) continue;
    const bool begins = i == 0 || !shown(i - 1);
    path += fmt::format("{}{:.1f} {:.1f}", begins ? "M" : "L", x(series.x[i]), y(series.y[i]));
    if (begins && !shown(i + 1)) path += "h.1";
  }
  return path;
}

std::string Numbers(const std::vector<double>& values) {
  std::string out;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ',';
    if (std::isfinite(values[i])) out += fmt::format("{:.6g}", values[i]);
  }
  return out;
}

}  // namespace

std::string DrawLines(const LineChart& chart, bool standalone) {
  std::vector<double> xs, ys;
  for (const Series& series : chart.series) {
    xs.insert(xs.end(), series.x.begin(), series.x.end());
    ys.insert(ys.end(), series.y.begin(), series.y.end());
  }
  if (chart.from_zero) ys.push_back(0);
  const std::vector<LegendEntry> legend = ChartLegend(chart);
  const double top = PlotTop(standalone), bottom = top + kPlotHeight;
  const double height = bottom + kBottom + LegendHeight(legend, standalone);
  const Scale x = FitScale(xs, kLeft, kChartWidth - kRight, false);
  const Scale y = FitScale(ys, bottom, top, chart.log_y);
  std::string out = SvgOpen("lines", chart.id, chart.title, chart.description, height, standalone);
  out += SvgAxes(x, y, chart.x_label, chart.y_label);
  // Zooming in leaves parts of the lines outside of the plot.
  const std::string id = EscapeXml(chart.id);
  out += fmt::format(
      "<clipPath id=\"{}-clip\"><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" "
      "height=\"{:.1f}\"/></clipPath>\n",
      id, x.from, y.to, x.to - x.from, y.from - y.to);
  out += fmt::format(
      "<g class=\"plot\" clip-path=\"url(#{}-clip)\" data-x=\"{},{},{},{}\" "
      "data-y=\"{},{},{},{}\" data-log=\"{}\" data-label=\"{}\">\n",
      id, x.low, x.high, x.from, x.to, y.low, y.high, y.from, y.to, chart.log_y ? 1 : 0,
      EscapeXml(chart.x_label));
  for (size_t n = 0; n < chart.series.size(); ++n) {
    const Series& series = chart.series[n];
    out += fmt::format("<path class=\"line {}\" d=\"{}\"", SeriesClass(SeriesColour(chart, n)),
                       Path(series, x, y));
    if (!standalone) {
      out += fmt::format(" data-name=\"{}\" data-xs=\"{}\" data-ys=\"{}\"", EscapeXml(series.name),
                         Numbers(series.x), Numbers(series.y));
    }
    out += "/>\n";
  }
  out += "</g>\n";
  return standalone ? out + SvgLegend(legend, bottom + kBottom + 4) : out;
}

}  // namespace denseformer
