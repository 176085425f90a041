#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/svg.h"

namespace denseformer {

std::string DrawScatter(const ScatterChart& chart, bool standalone) {
  std::vector<double> xs, ys;
  std::vector<std::string> groups;
  for (const Point& point : chart.points) {
    xs.push_back(point.x);
    ys.push_back(point.y);
    if (std::find(groups.begin(), groups.end(), point.group) == groups.end())
      groups.push_back(point.group);
  }
  const double height = kChartHeight + 18 * static_cast<double>((groups.size() + 1) / 2);
  const Scale x = FitScale(xs, kLeft, kChartWidth - kRight - 40, false);
  const Scale y = FitScale(ys, kChartHeight - kBottom, kTop, false);
  std::string out =
      SvgOpen("scatter", chart.id, chart.title, chart.description, kChartWidth, height, standalone);
  out += SvgAxes(x, y, chart.x_label, chart.y_label);
  auto group_of = [&](const Point& point) {
    return static_cast<size_t>(std::find(groups.begin(), groups.end(), point.group) -
                               groups.begin());
  };
  out += "<g class=\"points\">\n";
  for (const Point& point : chart.points) {
    if (!std::isfinite(point.x) || !std::isfinite(point.y)) continue;
    out += fmt::format(
        "<circle class=\"fill edge {}\" cx=\"{:.1f}\" cy=\"{:.1f}\" "
        "r=\"6\"><title>{}</title></circle>"
        "<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
        SeriesClass(group_of(point)), x(point.x), y(point.y),
        EscapeXml(fmt::format("{}, {}: {} {}, {} {}", point.group, point.label, chart.x_label,
                              ShortNumber(point.x), chart.y_label, ShortNumber(point.y))),
        x(point.x) + 9, y(point.y) + 4, EscapeXml(point.label));
  }
  out += "</g>\n";
  for (size_t n = 0; n < groups.size(); ++n) {
    const double left = kLeft + static_cast<double>(n % 2) * (kChartWidth - kLeft - kRight) / 2;
    const double top = kChartHeight + 18 * static_cast<double>(n / 2);
    out += fmt::format(
        "<circle class=\"fill {}\" cx=\"{:.0f}\" cy=\"{:.0f}\" r=\"5\"/><text x=\"{:.0f}\" "
        "y=\"{:.0f}\">{}</text>\n",
        SeriesClass(n), left + 6, top, left + 18, top + 4, EscapeXml(groups[n]));
  }
  return out;
}

std::string DrawBars(const BarChart& chart, bool standalone) {
  constexpr double kRow = 26, kNames = 250, kValues = 80;
  double largest = 0;
  for (const auto& [name, value] : chart.bars) {
    if (std::isfinite(value)) largest = std::max(largest, value);
  }
  const double height = kTop + kRow * static_cast<double>(chart.bars.size()) + 30;
  const double width = kChartWidth - kNames - kValues - kRight;
  std::string out =
      SvgOpen("bars", chart.id, chart.title, chart.description, kChartWidth, height, standalone);
  for (size_t n = 0; n < chart.bars.size(); ++n) {
    const auto& [name, value] = chart.bars[n];
    const double top = kTop + kRow * static_cast<double>(n);
    const double length =
        largest > 0 && std::isfinite(value) ? width * std::max(value, 0.0) / largest : 0;
    out += fmt::format(
        "<text text-anchor=\"end\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>"
        "<rect class=\"fill k0\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
        "stroke=\"none\"/>"
        "<text class=\"soft\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
        kNames - 8, top + 16, EscapeXml(name), kNames, top + 4, length, kRow - 8,
        kNames + length + 6, top + 16, ShortNumber(value));
  }
  out += fmt::format("<text class=\"soft\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", kNames,
                     height - 8, EscapeXml(chart.value_label));
  return out;
}

}  // namespace denseformer
