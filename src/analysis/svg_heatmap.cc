#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "analysis/svg.h"

namespace denseformer {
namespace {

// Blue, neutral, orange: told apart with every common colour blindness.
constexpr std::array<std::array<double, 3>, 5> kStops = {
    {{33, 102, 172}, {146, 197, 222}, {245, 245, 243}, {253, 184, 99}, {179, 88, 6}}};

// t from -1 to 1.
std::string Colour(double t) {
  const double at = (std::clamp(t, -1.0, 1.0) + 1) * 2;
  const size_t below = std::min<size_t>(static_cast<size_t>(at), 3);
  const double part = at - static_cast<double>(below);
  std::array<int, 3> c{};
  for (int i = 0; i < 3; ++i) {
    c[i] = static_cast<int>(
        std::lround(kStops[below][i] + part * (kStops[below + 1][i] - kStops[below][i])));
  }
  return fmt::format("#{:02x}{:02x}{:02x}", c[0], c[1], c[2]);
}

// The colours saturate here: one large weight on the diagonal must not make all others look like
// zero.
double Saturation(const std::vector<std::vector<double>>& values) {
  std::vector<double> sizes;
  for (const auto& row : values) {
    for (double value : row) {
      if (std::isfinite(value)) sizes.push_back(std::abs(value));
    }
  }
  if (sizes.empty()) return 1;
  std::sort(sizes.begin(), sizes.end());
  const double high = sizes[static_cast<size_t>(0.95 * static_cast<double>(sizes.size() - 1))];
  return std::max({high, sizes.back() * 0.1, 1e-12});
}

std::string Legend(double saturation, double x, double y, double height) {
  std::string out;
  constexpr int kSteps = 40;
  for (int i = 0; i < kSteps; ++i) {
    const double t = 1 - 2.0 * i / (kSteps - 1);
    out +=
        fmt::format("<rect x=\"{:.1f}\" y=\"{:.2f}\" width=\"12\" height=\"{:.2f}\" fill=\"{}\"/>",
                    x, y + height * i / kSteps, height / kSteps + 0.5, Colour(t));
  }
  const double values[] = {saturation, 0, -saturation};
  for (int i = 0; i < 3; ++i) {
    out += fmt::format("<text class=\"soft\" x=\"{:.1f}\" y=\"{:.1f}\">{}{}</text>", x + 17,
                       y + height * i / 2 + 4,
                       i == 0   ? "≥ "
                       : i == 2 ? "≤ "
                                : "",
                       ShortNumber(values[i]));
  }
  return out + "\n";
}

}  // namespace

std::string DrawHeatMap(const HeatMap& chart, bool standalone) {
  const size_t rows = chart.values.size(), cols = rows == 0 ? 0 : chart.values[0].size();
  constexpr double kLegend = 70;
  const double width = kChartWidth - kLeft - kRight - kLegend;
  const double cell = std::clamp(width / static_cast<double>(std::max<size_t>(cols, 1)), 2.0, 34.0);
  const double height = kTop + cell * static_cast<double>(rows) + kBottom;
  const double saturation = Saturation(chart.values);
  std::string out =
      SvgOpen("heat", chart.id, chart.title, chart.description, kChartWidth, height, standalone);
  out += "<g class=\"cells\">\n";
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < cols; ++j) {
      const double value = chart.values[i][j];
      if (!std::isfinite(value)) continue;
      std::string text =
          fmt::format("{} {}, {} {}: {}", chart.y_label, i, chart.x_label, j, ShortNumber(value));
      if (!chart.errors.empty() && std::isfinite(chart.errors[i][j])) {
        text += fmt::format(" ± {}", ShortNumber(chart.errors[i][j]));
      }
      out += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" "
          "fill=\"{}\"><title>{}</title></rect>\n",
          kLeft + cell * static_cast<double>(j), kTop + cell * static_cast<double>(i), cell * 0.96,
          cell * 0.96, Colour(value / saturation), EscapeXml(text));
    }
  }
  out += "</g>\n";
  const size_t step = std::max<size_t>(1, static_cast<size_t>(std::ceil(22 / cell)));
  for (size_t j = 0; j < cols; j += step) {
    out += fmt::format(
        "<text class=\"soft\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>",
        kLeft + cell * (static_cast<double>(j) + 0.5), kTop + cell * static_cast<double>(rows) + 16,
        j);
  }
  for (size_t i = 0; i < rows; i += step) {
    out +=
        fmt::format("<text class=\"soft\" text-anchor=\"end\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>",
                    kLeft - 6, kTop + cell * (static_cast<double>(i) + 0.5) + 4, i);
  }
  out += fmt::format(
      "\n<text class=\"soft\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
      kLeft + cell * static_cast<double>(cols) / 2, height - 14, EscapeXml(chart.x_label));
  out += fmt::format(
      "<text class=\"soft\" text-anchor=\"middle\" transform=\"translate(15,{:.1f}) "
      "rotate(-90)\">{}</text>\n",
      kTop + cell * static_cast<double>(rows) / 2, EscapeXml(chart.y_label));
  return out + Legend(saturation, kChartWidth - kRight - kLegend + 14, kTop,
                      std::max(60.0, std::min(220.0, cell * static_cast<double>(rows))));
}

}  // namespace denseformer
