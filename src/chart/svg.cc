#include "chart/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "chart/chart_style.h"

namespace denseformer {
namespace {

constexpr size_t kSeriesColors = 8;
// The width of a digit where a small window shrinks the chart and the font rounds up, and a gap.
constexpr double kTickLetter = 8.5, kTickGap = 4;

}  // namespace

std::vector<double> NiceTicks(double low, double high, int count) {
  if (!(high > low)) return {low};
  const double raw = (high - low) / std::max(count, 1);
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (factor * power >= raw) {
      step = factor * power;
      break;
    }
  }
  std::vector<double> ticks;
  for (double k = std::ceil(low / step - 1e-9); k * step <= high + step * 1e-9; ++k)
    ticks.push_back(k == 0 ? 0 : k * step);
  return ticks;
}

double Scale::operator()(double value) const {
  const double a = log ? std::log10(low) : low, b = log ? std::log10(high) : high;
  const double v = log ? std::log10(std::max(value, low * 1e-3)) : value;
  return from + (to - from) * (b > a ? (v - a) / (b - a) : 0.5);
}

std::vector<double> Scale::Ticks(int count) const {
  if (!ticks.empty()) return ticks;
  const double decades = log ? std::log10(high) - std::log10(low) : 0;
  if (!log || decades < 0.9) return NiceTicks(low, high, count);
  std::vector<double> round;
  const double stride = std::ceil(decades / (count + 1));
  for (double e = std::floor(std::log10(low)); e <= std::log10(high); ++e) {
    if (std::fmod(std::abs(e), stride) != 0) continue;
    for (double factor : {1.0, 2.0, 5.0}) {
      if (factor > 1 && decades * 3 > count + 2) break;
      const double tick = factor * std::pow(10, e);
      if (tick >= low && tick <= high) round.push_back(tick);
    }
  }
  return round;
}

Scale FitScale(const std::vector<double>& values, double from, double to, bool log) {
  Scale scale{0, 1, from, to, log};
  bool any = false;
  for (double value : values) {
    if (!std::isfinite(value) || (log && value <= 0)) continue;
    scale.low = any ? std::min(scale.low, value) : value;
    scale.high = any ? std::max(scale.high, value) : value;
    any = true;
  }
  if (!any) {
    scale.low = log ? 0.1 : 0;
  } else if (scale.high <= scale.low) {
    const double room = std::max(1e-9, std::abs(scale.low) * 0.1);
    scale.low -= room;
    scale.high += room;
  } else if (log) {
    const double room = std::pow(scale.high / scale.low, 0.04);
    using Limits = std::numeric_limits<double>;  // no room beyond them
    scale.high = std::min(scale.high * room, Limits::max());
    scale.low = std::max(scale.low / room, Limits::min());
  } else {
    const double room = 0.04 * (scale.high - scale.low);
    scale.low -= room;
    scale.high += room;
  }
  return scale;
}

std::string SeriesClass(size_t n) {
  const size_t round = n / kSeriesColors;
  return fmt::format("k{}{}", n % kSeriesColors,
                     round == 0 ? "" : fmt::format(" dash{}", (round - 1) % 2 + 1));
}

size_t SeriesColor(const LineChart& chart, size_t n) {
  return chart.series[n].color < 0 ? n : static_cast<size_t>(chart.series[n].color);
}

std::string SvgOpen(std::string_view kind, const std::string& id, const std::string& title,
                    const std::string& description, double height, bool standalone, double width) {
  const std::string safe_id = EscapeXml(id), safe_title = EscapeXml(title),
                    safe_description = EscapeXml(description);
  const std::string frame =
      fmt::format("class=\"chart {}\" id=\"{}\" viewBox=\"0 0 {} {:.0f}\" role=\"img\"", kind,
                  safe_id, width, height);
  // In the page a <title> would show as a second label under the pointer.
  if (!standalone) {
    return fmt::format("<svg {} aria-label=\"{}. {}\">\n", frame, safe_title, safe_description);
  }
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<svg xmlns=\"http://www.w3.org/2000/svg\" {0} width=\"{1:.0f}\" height=\"{2:.0f}\" "
      "aria-labelledby=\"{3}-t {3}-d\">\n<title id=\"{3}-t\">{4}</title>\n"
      "<desc id=\"{3}-d\">{5}</desc>\n<style>{6}</style>\n"
      "<rect class=\"bg\" width=\"100%\" height=\"100%\"/>\n"
      "<text class=\"title\" x=\"12\" y=\"22\">{7}</text>\n",
      frame, width * 1.5, height * 1.5, safe_id, safe_title, safe_description, kChartStyle,
      EscapeXml(Shortened(title, width - 50)));
}

std::string SvgAxisLabels(double left, double right, double top, double bottom,
                          const std::string& x_label, const std::string& y_label) {
  // The label of y stands above its axis, where wide numbers cannot reach it.
  return fmt::format(
      "<text class=\"soft\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n"
      "<text class=\"soft\" x=\"8\" y=\"{:.1f}\">{}</text>\n",
      (left + right) / 2, bottom + 37, EscapeXml(x_label), top - 13, EscapeXml(y_label));
}

std::string SvgAxes(const Scale& x, const Scale& y, const std::string& x_label,
                    const std::string& y_label) {
  std::string out = "<g class=\"axes\">\n";
  double free = 0;  // right of the label before
  for (double tick : x.Ticks(6)) {
    out += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>\n",
        x(tick), y.from, y.to);
    const std::string label = TickLabel(tick);
    const double half = kTickLetter * static_cast<double>(label.size()) / 2;
    if (x(tick) - half < free) continue;  // a line without a label
    free = x(tick) + half + kTickGap;
    out += fmt::format(
        "<text class=\"soft\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
        x(tick), y.from + 17, label);
  }
  for (double tick : y.Ticks(5)) {
    out += fmt::format(
        "<line class=\"grid\" x1=\"{1:.1f}\" x2=\"{2:.1f}\" y1=\"{0:.1f}\" y2=\"{0:.1f}\"/>"
        "<text class=\"soft\" text-anchor=\"end\" x=\"{3:.1f}\" y=\"{4:.1f}\">{5}</text>\n",
        y(tick), x.from, x.to, x.from - 6, y(tick) + 4, TickLabel(tick));
  }
  return out + "</g>\n" + SvgAxisLabels(x.from, x.to, y.to, y.from, x_label, y_label);
}

double LegendHeight(const std::vector<LegendEntry>& legend, bool standalone) {
  return standalone ? kLegendRow * static_cast<double>((legend.size() + 1) / 2) : 0;
}

std::string SvgLegend(const std::vector<LegendEntry>& legend, double top) {
  std::string out;
  const double column = (kChartWidth - kLeft - kRight) / 2;
  for (size_t n = 0; n < legend.size(); ++n) {
    const double left = kLeft + static_cast<double>(n % 2) * column;
    const double middle = top + kLegendRow * static_cast<double>(n / 2);
    out += fmt::format(
        "<line class=\"line {}\" x1=\"{:.0f}\" x2=\"{:.0f}\" y1=\"{:.0f}\" y2=\"{:.0f}\"/>"
        "<text x=\"{:.0f}\" y=\"{:.0f}\">{}</text>\n",
        SeriesClass(legend[n].color), left, left + 20, middle, middle, left + 26, middle + 4,
        EscapeXml(Shortened(legend[n].name, column - 30)));
  }
  return out;
}

std::string DrawSvg(const Chart& chart, bool standalone) {
  struct Draw {
    bool standalone;
    std::string operator()(const LineChart& c) const { return DrawLines(c, standalone); }
    std::string operator()(const HeatMap& c) const { return DrawHeatMap(c, standalone); }
    std::string operator()(const ScatterChart& c) const { return DrawScatter(c, standalone); }
    std::string operator()(const BarChart& c) const { return DrawBars(c, standalone); }
    std::string operator()(const TimelineChart& c) const { return DrawTimeline(c, standalone); }
  };
  return std::visit(Draw{standalone}, chart) + "</svg>\n";
}

const std::string& ChartId(const Chart& chart) {
  return std::visit([](const auto& c) -> const std::string& { return c.id; }, chart);
}

const std::string& ChartTitle(const Chart& chart) {
  return std::visit([](const auto& c) -> const std::string& { return c.title; }, chart);
}

const std::string& ChartDescription(const Chart& chart) {
  return std::visit([](const auto& c) -> const std::string& { return c.description; }, chart);
}

std::vector<LegendEntry> ChartLegend(const Chart& chart) {
  std::vector<LegendEntry> legend;
  if (const auto* lines = std::get_if<LineChart>(&chart)) {
    for (size_t n = 0; n < lines->series.size(); ++n)
      legend.push_back({lines->series[n].name, SeriesColor(*lines, n)});
  } else if (const auto* timeline = std::get_if<TimelineChart>(&chart)) {
    for (size_t n = 0; n < timeline->kinds.size(); ++n) legend.push_back({timeline->kinds[n], n});
  } else if (const auto* scatter = std::get_if<ScatterChart>(&chart)) {
    for (size_t n = 0; n < scatter->points.size(); ++n) {
      const Point& point = scatter->points[n];
      const LegendEntry entry{point.color < 0 ? point.group : point.name, PointColor(*scatter, n)};
      if (std::none_of(legend.begin(), legend.end(),
                       [&](const LegendEntry& known) { return known.color == entry.color; })) {
        legend.push_back(entry);
      }
    }
  }
  return legend;
}

}  // namespace denseformer
