#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "chart/svg.h"

namespace denseformer {
namespace {

constexpr double kCap = 2.5;  // half the width of a whisker's ends, pixels
// Pixels between the whiskers of two lines at one x, and the most from the first line to the last:
// the room that FitScale leaves on both sides of the plot.
constexpr double kApart = 6, kMostApart = 24;

bool Shown(const Series& series, size_t i, bool log_y) {
  return i < series.x.size() && i < series.y.size() && std::isfinite(series.x[i]) &&
         std::isfinite(series.y[i]) && (!log_y || series.y[i] > 0);
}

// 0 for none.
double ErrorAt(const Series& series, size_t i) {
  const bool known = i < series.errors.size() && std::isfinite(series.errors[i]);
  return known ? std::max(series.errors[i], 0.0) : 0;
}

bool HasErrors(const Series& series) {
  for (size_t i = 0; i < series.y.size(); ++i) {
    if (ErrorAt(series, i) > 0) return true;
  }
  return false;
}

// A path through the finite points; a gap where a value is missing, a dot for a point alone.
std::string Path(const Series& series, const Scale& x, const Scale& y) {
  std::string path;
  for (size_t i = 0; i < series.x.size(); ++i) {
    if (!Shown(series, i, y.log)) continue;
    const bool begins = i == 0 || !Shown(series, i - 1, y.log);
    path += fmt::format("{}{:.1f} {:.1f}", begins ? "M" : "L", x(series.x[i]), y(series.y[i]));
    if (begins && !Shown(series, i + 1, y.log)) path += "h.1";
  }
  return path;
}

// From y - error to y + error with an end on each side, and a dot at y.
std::string Whiskers(const LineChart& chart, size_t n, const Scale& x, const Scale& y) {
  const Series& series = chart.series[n];
  std::string out;
  for (size_t i = 0; i < series.x.size(); ++i) {
    const double error = ErrorAt(series, i);
    if (!Shown(series, i, y.log) || error <= 0) continue;
    const double at = x(series.x[i]), value = series.y[i];
    const double low = y(value - error), high = y(value + error);
    out += fmt::format(
        "<g class=\"{0}\"><path class=\"line whisker\" d=\"M{1:.1f} {3:.1f}H{2:.1f}M{1:.1f} "
        "{4:.1f}H{2:.1f}M{5:.1f} {3:.1f}V{4:.1f}\"/><circle class=\"fill\" cx=\"{5:.1f}\" "
        "cy=\"{6:.1f}\" r=\"2.2\"/><title>{7}</title></g>\n",
        SeriesClass(SeriesColor(chart, n)), at - kCap, at + kCap, low, high, at, y(value),
        EscapeXml(fmt::format("{}, {} {}: {} ± {}", series.name, chart.x_label,
                              ShortNumber(series.x[i]), ShortNumber(value), ShortNumber(error))));
  }
  return out;
}

// Of the points that are drawn; ascending and without repetition.
std::vector<double> ShownXs(const LineChart& chart) {
  std::vector<double> xs;
  for (const Series& series : chart.series) {
    for (size_t i = 0; i < series.x.size(); ++i) {
      if (Shown(series, i, chart.log_y)) xs.push_back(series.x[i]);
    }
  }
  std::sort(xs.begin(), xs.end());
  xs.erase(std::unique(xs.begin(), xs.end()), xs.end());
  return xs;
}

// The values and the ends of the whiskers.
std::vector<double> Ys(const LineChart& chart) {
  std::vector<double> ys;
  for (const Series& series : chart.series) {
    for (size_t i = 0; i < series.y.size(); ++i) {
      for (const double side : {-1, 0, 1}) ys.push_back(series.y[i] + side * ErrorAt(series, i));
    }
    ys.insert(ys.end(), series.low.begin(), series.low.end());
    ys.insert(ys.end(), series.high.begin(), series.high.end());
  }
  if (chart.from_zero) ys.push_back(0);
  return ys;
}

// How far, in pixels, each line is moved aside so that whiskers at the same x do not hide each
// other: all of a line by the same, and all lines within half the distance to the next x.
std::vector<double> Shifts(const LineChart& chart, const std::vector<double>& xs, const Scale& x) {
  std::vector<double> shifts(chart.series.size(), 0.0);
  std::vector<size_t> moved;
  for (size_t n = 0; n < chart.series.size(); ++n) {
    if (HasErrors(chart.series[n])) moved.push_back(n);
  }
  if (moved.size() < 2) return shifts;
  double most = kMostApart;
  for (size_t i = 1; i < xs.size(); ++i) most = std::min(most, (x(xs[i]) - x(xs[i - 1])) / 2);
  const double last = static_cast<double>(moved.size() - 1);
  const double apart = std::min(kApart, most / last);
  for (size_t k = 0; k < moved.size(); ++k)
    shifts[moved[k]] = apart * (static_cast<double>(k) - last / 2);
  return shifts;
}

// The area between the lowest and the highest values.
std::string BandPath(const Series& series, const Scale& x, const Scale& y) {
  std::string path;
  for (size_t i = 0; i < series.x.size(); ++i)
    path += fmt::format("{}{:.1f} {:.1f}", i == 0 ? "M" : "L", x(series.x[i]), y(series.high[i]));
  for (size_t i = series.x.size(); i > 0; --i)
    path += fmt::format("L{:.1f} {:.1f}", x(series.x[i - 1]), y(series.low[i - 1]));
  return path.empty() ? path : path + "Z";
}

std::string Numbers(const std::vector<double>& values) {
  std::string out;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ',';
    if (std::isfinite(values[i])) out += fmt::format("{:.6g}", values[i]);
  }
  return out;
}

// What the script of the page needs: all points, and which lines go together.
std::string DataAttributes(const LineChart& chart, size_t n) {
  const Series& series = chart.series[n];
  std::string out = fmt::format(" data-name=\"{}\" data-xs=\"{}\" data-ys=\"{}\"",
                                EscapeXml(series.name), Numbers(series.x), Numbers(series.y));
  if (!series.counts.empty()) out += fmt::format(" data-counts=\"{}\"", Numbers(series.counts));
  if (!series.low.empty()) {
    out +=
        fmt::format(" data-low=\"{}\" data-high=\"{}\"", Numbers(series.low), Numbers(series.high));
  }
  if (chart.shared_legend) out += fmt::format(" data-key=\"{}\"", SeriesColor(chart, n));
  return out;
}

// Classes of the line: the members of a group give way to its band.
std::string GroupClass(const Series& series) {
  if (series.group < 0) return "";
  return series.low.empty() ? " member" : " mean";
}

}  // namespace

std::string DrawLines(const LineChart& whole, bool standalone) {
  LineChart chart = whole;  // with as many points as are drawn
  for (Series& series : chart.series) series = Averaged(series, kMostPoints);
  const std::vector<double> xs = ShownXs(chart);
  const std::vector<LegendEntry> legend = ChartLegend(chart);
  const double top = PlotTop(standalone), bottom = top + kPlotHeight;
  const double height = bottom + kBottom + LegendHeight(legend, standalone);
  Scale x = FitScale(xs, kLeft, kChartWidth - kRight, chart.log_x);
  if (chart.ticks_at_points) x.ticks = xs;
  const Scale y = FitScale(Ys(chart), bottom, top, chart.log_y);
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
      "data-y=\"{},{},{},{}\" data-log=\"{}\" data-smooth=\"{}\" data-most=\"{}\" "
      "data-label=\"{}\" data-count-word=\"{}\">\n",
      id, x.low, x.high, x.from, x.to, y.low, y.high, y.from, y.to, chart.log_y ? 1 : 0,
      chart.smoothable ? 1 : 0, kMostPoints, EscapeXml(chart.x_label), EscapeXml(chart.count_word));
  const std::vector<double> shifts =
      standalone ? Shifts(chart, xs, x) : std::vector<double>(chart.series.size(), 0.0);
  for (size_t n = 0; n < chart.series.size(); ++n) {
    const Series& series = chart.series[n];
    Scale aside = x;
    aside.from += shifts[n];
    aside.to += shifts[n];
    const std::string classes = SeriesClass(SeriesColor(chart, n)) + GroupClass(series);
    if (!series.low.empty()) {
      out +=
          fmt::format("<path class=\"band {}\" d=\"{}\"/>\n", classes, BandPath(series, aside, y));
    }
    out += fmt::format("<path class=\"line {}\" d=\"{}\"{}/>\n", classes, Path(series, aside, y),
                       standalone ? "" : DataAttributes(whole, n));
    if (standalone) out += Whiskers(chart, n, aside, y);
  }
  out += "</g>\n";
  return standalone ? out + SvgLegend(legend, bottom + kBottom + 4) : out;
}

}  // namespace denseformer
