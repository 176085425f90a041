#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/svg.h"

namespace denseformer {
namespace {

constexpr double kLegendRow = 18;

// A path through the finite points; a gap where a value is missing.
std::string Path(const Series& series, const Scale& x, const Scale& y) {
  std::string path;
  bool pen = false;
  for (size_t i = 0; i < series.x.size(); ++i) {
    if (!std::isfinite(series.x[i]) || !std::isfinite(series.y[i]) || (y.log && series.y[i] <= 0)) {
      pen = false;
      continue;
    }
    path += fmt::format("{}{:.1f} {:.1f}", pen ? "L" : "M", x(series.x[i]), y(series.y[i]));
    pen = true;
  }
  return path;
}

std::string Band(const Series& series, const Scale& x, const Scale& y) {
  std::string upper, lower;
  for (size_t i = 0; i < series.x.size() && i < series.error.size(); ++i) {
    if (!std::isfinite(series.error[i]) || !std::isfinite(series.y[i])) continue;
    upper += fmt::format("{}{:.1f} {:.1f}", upper.empty() ? "M" : "L", x(series.x[i]),
                         y(series.y[i] + series.error[i]));
    lower = fmt::format("L{:.1f} {:.1f}", x(series.x[i]), y(series.y[i] - series.error[i])) + lower;
  }
  return upper.empty() ? "" : upper + lower + "Z";
}

std::string Numbers(const std::vector<double>& values) {
  std::string out;
  for (double value : values) {
    out += (out.empty() ? "" : ",") +
           (std::isfinite(value) ? fmt::format("{:.6g}", value) : std::string("null"));
  }
  return out;
}

}  // namespace

std::string DrawLines(const LineChart& chart, bool standalone) {
  std::vector<double> xs, ys;
  for (const Series& series : chart.series) {
    xs.insert(xs.end(), series.x.begin(), series.x.end());
    for (size_t i = 0; i < series.y.size(); ++i) {
      const double error =
          i < series.error.size() && std::isfinite(series.error[i]) ? series.error[i] : 0;
      ys.push_back(series.y[i] + error);
      ys.push_back(series.y[i] - error);
    }
  }
  const double height =
      kChartHeight + kLegendRow * static_cast<double>((chart.series.size() + 1) / 2);
  const Scale x = FitScale(xs, kLeft, kChartWidth - kRight, false);
  const Scale y = FitScale(ys, kChartHeight - kBottom, kTop, chart.log_y);
  std::string out =
      SvgOpen("lines", chart.id, chart.title, chart.description, kChartWidth, height, standalone);
  out += SvgAxes(x, y, chart.x_label, chart.y_label);
  // The report's script reads these to show values and to zoom.
  out += fmt::format(
      "<g class=\"plot\" data-x=\"{},{},{},{}\" data-y=\"{},{},{},{}\" data-log=\"{}\">\n", x.low,
      x.high, x.from, x.to, y.low, y.high, y.from, y.to, chart.log_y ? 1 : 0);
  for (size_t n = 0; n < chart.series.size(); ++n) {
    const Series& series = chart.series[n];
    const std::string band = Band(series, x, y);
    if (!band.empty())
      out += fmt::format("<path class=\"band fill {}\" d=\"{}\"/>\n", SeriesClass(n), band);
    out += fmt::format(
        "<path class=\"line {}\" d=\"{}\" data-name=\"{}\" data-xs=\"{}\" data-ys=\"{}\"/>\n",
        SeriesClass(n), Path(series, x, y), EscapeXml(series.name), Numbers(series.x),
        Numbers(series.y));
  }
  out += "</g>\n";
  for (size_t n = 0; n < chart.series.size(); ++n) {
    const double left = kLeft + static_cast<double>(n % 2) * (kChartWidth - kLeft - kRight) / 2;
    const double top = kChartHeight + kLegendRow * static_cast<double>(n / 2);
    out += fmt::format(
        "<line class=\"line {}\" x1=\"{:.0f}\" x2=\"{:.0f}\" y1=\"{:.0f}\" y2=\"{:.0f}\"/>"
        "<text x=\"{:.0f}\" y=\"{:.0f}\">{}</text>\n",
        SeriesClass(n), left, left + 22, top, top, left + 28, top + 4,
        EscapeXml(chart.series[n].name));
  }
  return out;
}

}  // namespace denseformer
