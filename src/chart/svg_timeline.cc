// Boxes in rows over a time axis.
#include <fmt/format.h>

#include <algorithm>

#include "chart/svg.h"

namespace denseformer {

std::string DrawTimeline(const TimelineChart& chart, bool standalone) {
  constexpr double kRow = 26, kWidth = 960, kNames = 70;
  double end = 0;
  for (const TimelineBox& box : chart.boxes) end = std::max(end, box.end);
  const double top = PlotTop(standalone);
  const double bottom = top + kRow * static_cast<double>(chart.rows.size());
  const std::vector<LegendEntry> legend = ChartLegend(chart);
  const double height = bottom + kBottom + LegendHeight(legend, standalone);
  const Scale x = {0, end > 0 ? end : 1, kNames, kWidth - kRight};
  std::string out =
      SvgOpen("timeline", chart.id, chart.title, chart.description, height, standalone, kWidth);
  for (const double tick : x.Ticks(8)) {
    out += fmt::format(
        "<path class=\"grid\" d=\"M{0:.1f} {1:.1f}V{2:.1f}\"/>"
        "<text class=\"soft\" text-anchor=\"middle\" x=\"{0:.1f}\" y=\"{3:.1f}\">{4}</text>\n",
        x(tick), top, bottom, bottom + 16, TickLabel(tick));
  }
  for (size_t row = 0; row < chart.rows.size(); ++row) {
    out += fmt::format("<text text-anchor=\"end\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                       kNames - 8, top + kRow * static_cast<double>(row) + 17,
                       EscapeXml(Shortened(chart.rows[row], kNames - 10)));
  }
  for (const TimelineBox& box : chart.boxes) {
    const double left = x(box.begin), width = std::max(0.5, x(box.end) - left);
    const double above = top + kRow * static_cast<double>(box.row);
    out += fmt::format(
        "<rect class=\"fill edge {}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" "
        "height=\"{:.1f}\"><title>{}</title></rect>\n",
        SeriesClass(static_cast<size_t>(box.kind)), left, above + 3, width, kRow - 6,
        EscapeXml(fmt::format("{}, {}: {} to {}", chart.rows[box.row], box.name,
                              ShortNumber(box.begin), ShortNumber(box.end))));
    // A label only where it fits into its box.
    if (width > 8.0 * static_cast<double>(box.label.size()) + 2) {
      out += fmt::format(
          "<text class=\"number on\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
          left + width / 2, above + 17, EscapeXml(box.label));
    }
  }
  out += fmt::format(
      "<text class=\"soft\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
      (kNames + kWidth - kRight) / 2, bottom + 34, EscapeXml(chart.x_label));
  return standalone ? out + SvgLegend(legend, bottom + kBottom + 4) : out;
}

}  // namespace denseformer
