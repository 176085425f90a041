// Points and bars.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "chart/svg.h"

namespace denseformer {
namespace {

constexpr double kRadius = 5;

struct Box {
  double left, top, right, bottom;
  bool Meets(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

// Places for labels beside points: the first of right, left, above and below that is free; none
// where all are taken (hovering still tells).
class Labels {
 public:
  void Block(double x, double y) {
    taken_.push_back({x - kRadius, y - kRadius, x + kRadius, y + kRadius});
  }
  // The left end of the base line.
  std::optional<std::pair<double, double>> Place(double x, double y, const std::string& text) {
    // As wide as a letter gets where a small window shrinks the chart and the font rounds up.
    const double width = 8.5 * static_cast<double>(text.size());
    const std::pair<double, double> places[] = {{x + kRadius + 4, y + 4},
                                                {x - kRadius - 4 - width, y + 4},
                                                {x - width / 2, y - kRadius - 4},
                                                {x - width / 2, y + kRadius + 13}};
    for (const auto& [left, base] : places) {
      const Box box{left, base - 10, left + width, base + 2};
      if (box.right > kChartWidth || box.left < kLeft) continue;
      if (std::any_of(taken_.begin(), taken_.end(), [&](const Box& b) { return b.Meets(box); }))
        continue;
      taken_.push_back(box);
      return std::pair(left, base);
    }
    return std::nullopt;
  }

 private:
  std::vector<Box> taken_;
};

// A line through the points of a group by x, where each has a label of its own (a depth).
std::string GroupLine(const ScatterChart& chart, const std::string& group, const Scale& x,
                      const Scale& y) {
  std::vector<const Point*> points;
  std::vector<std::string> labels;
  for (const Point& point : chart.points) {
    if (point.group != group || !std::isfinite(point.x) || !std::isfinite(point.y)) continue;
    points.push_back(&point);
    labels.push_back(point.label);
  }
  std::sort(labels.begin(), labels.end());
  if (points.size() < 2 || std::adjacent_find(labels.begin(), labels.end()) != labels.end())
    return "";
  std::sort(points.begin(), points.end(),
            [](const Point* a, const Point* b) { return a->x < b->x; });
  std::string path;
  for (const Point* point : points)
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x(point->x), y(point->y));
  return fmt::format("<path class=\"line thin join\" d=\"{}\"/>\n", path);
}

}  // namespace

std::vector<std::string> ScatterGroups(const ScatterChart& chart) {
  std::vector<std::string> groups;
  for (const Point& point : chart.points) {
    if (std::find(groups.begin(), groups.end(), point.group) == groups.end())
      groups.push_back(point.group);
  }
  return groups;
}

size_t PointColor(const ScatterChart& chart, size_t n) {
  const Point& point = chart.points[n];
  if (point.color >= 0) return static_cast<size_t>(point.color);
  const std::vector<std::string> groups = ScatterGroups(chart);
  return static_cast<size_t>(std::find(groups.begin(), groups.end(), point.group) - groups.begin());
}

std::string DrawScatter(const ScatterChart& chart, bool standalone) {
  std::vector<double> xs, ys;
  for (const Point& point : chart.points) {
    xs.push_back(point.x);
    ys.push_back(point.y);
  }
  const std::vector<std::string> groups = ScatterGroups(chart);
  const double top = PlotTop(standalone), bottom = top + kPlotHeight;
  const double height = bottom + kBottom + LegendHeight(ChartLegend(chart), standalone);
  const Scale x = FitScale(xs, kLeft + 8, kChartWidth - kRight - 16, false);
  const Scale y = FitScale(ys, bottom, top, false);
  std::string out =
      SvgOpen("scatter", chart.id, chart.title, chart.description, height, standalone);
  out += SvgAxes(x, y, chart.x_label, chart.y_label) + "<g class=\"points\">\n";
  for (const std::string& group : groups) out += GroupLine(chart, group, x, y);
  Labels labels;
  for (const Point& point : chart.points) {
    if (std::isfinite(point.x) && std::isfinite(point.y)) labels.Block(x(point.x), y(point.y));
  }
  for (size_t n = 0; n < chart.points.size(); ++n) {
    const Point& point = chart.points[n];
    if (!std::isfinite(point.x) || !std::isfinite(point.y)) continue;
    const std::string tip = EscapeXml(fmt::format(
        "{}\n{}\n{}: {}\n{}: {}", point.name.empty() ? point.group : point.name, point.label,
        chart.x_label, ShortNumber(point.x), chart.y_label, ShortNumber(point.y)));
    const auto place = labels.Place(x(point.x), y(point.y), point.label);
    const std::string key =
        standalone || point.color < 0 ? "" : fmt::format(" data-key=\"{}\"", point.color);
    out += fmt::format("<circle class=\"fill edge {}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"{}",
                       SeriesClass(PointColor(chart, n)), x(point.x), y(point.y), kRadius, key);
    out += standalone ? fmt::format("><title>{}</title></circle>", tip)
                      : fmt::format(" data-tip=\"{}\"/>", tip);
    if (!place) continue;
    out += fmt::format("<text class=\"soft\" x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", place->first,
                       place->second, key, EscapeXml(point.label));
  }
  out += "</g>\n";
  return standalone ? out + SvgLegend(ChartLegend(chart), bottom + kBottom + 4) : out;
}

std::string DrawBars(const BarChart& chart, bool standalone) {
  constexpr double kRow = 24, kNames = 150, kValues = 64;
  double largest = 0;
  for (const auto& [name, value] : chart.bars) {
    if (std::isfinite(value)) largest = std::max(largest, value);
  }
  const double top = PlotTop(standalone);
  const double height = top + kRow * static_cast<double>(chart.bars.size()) + 30;
  const double width = kChartWidth - kNames - kValues - kRight;
  std::string out = SvgOpen("bars", chart.id, chart.title, chart.description, height, standalone);
  for (size_t n = 0; n < chart.bars.size(); ++n) {
    const auto& [name, value] = chart.bars[n];
    const double row = top + kRow * static_cast<double>(n);
    const double length =
        largest > 0 && std::isfinite(value) ? width * std::max(value, 0.0) / largest : 0;
    out += fmt::format(
        "<text text-anchor=\"end\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>"
        "<rect class=\"bar\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>"
        "<text class=\"soft\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
        kNames - 8, row + 15, EscapeXml(Shortened(name, kNames - 14)), kNames, row + 3, length,
        kRow - 7, kNames + length + 6, row + 15, ShortNumber(value));
  }
  out += fmt::format("<text class=\"soft\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", kNames,
                     height - 10, EscapeXml(chart.value_label));
  return out;
}

}  // namespace denseformer
