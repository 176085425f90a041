#include "analysis/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace denseformer {
namespace {

constexpr int kSeriesColours = 8;

// Okabe and Ito's palette, lightened for dark backgrounds where needed.
constexpr std::string_view kStyle = R"css(
.chart{--ink:#1d232b;--soft:#68727e;--grid:#e3e7ec;--paper:#ffffff;
--s0:#0072b2;--s1:#d55e00;--s2:#009e73;--s3:#cc79a7;--s4:#8a6d00;--s5:#56b4e9;--s6:#444b54;--s7:#b58900;
font-family:system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
@media (prefers-color-scheme:dark){.chart{--ink:#e8ebef;--soft:#9aa5b1;--grid:#333b45;--paper:#161b21;
--s0:#5fb4ea;--s1:#f08a4b;--s2:#35c79d;--s3:#e39cc6;--s4:#d9b53a;--s5:#9bd3f5;--s6:#b5bec8;--s7:#f0c95a}}
.chart .bg{fill:var(--paper)}.chart text{fill:var(--ink);font-size:12px}
.chart .title{font-size:15px;font-weight:600}.chart .soft{fill:var(--soft)}
.chart .grid{stroke:var(--grid);stroke-width:1}.chart .line{fill:none;stroke-width:2;stroke-linejoin:round}
.chart .band{opacity:.18;stroke:none}.chart .edge{stroke:var(--paper);stroke-width:1.2}
.chart .k0{stroke:var(--s0);color:var(--s0)}.chart .k1{stroke:var(--s1);color:var(--s1)}
.chart .k2{stroke:var(--s2);color:var(--s2)}.chart .k3{stroke:var(--s3);color:var(--s3)}
.chart .k4{stroke:var(--s4);color:var(--s4)}.chart .k5{stroke:var(--s5);color:var(--s5)}
.chart .k6{stroke:var(--s6);color:var(--s6)}.chart .k7{stroke:var(--s7);color:var(--s7)}
.chart .fill{fill:currentColor}
)css";

}  // namespace

std::string_view ChartStyle() { return kStyle; }

std::string EscapeXml(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        if (static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t') out += c;
    }
  }
  return out;
}

std::string ShortNumber(double value) {
  if (!std::isfinite(value)) return "–";
  const double size = std::abs(value);
  if (size >= 1e6 || (size > 0 && size < 1e-3)) return fmt::format("{:.2e}", value);
  if (size >= 1000) return fmt::format("{:.0f}", value);
  return fmt::format("{:.4g}", value);
}

std::vector<double> NiceTicks(double low, double high, int count) {
  if (!(high > low)) return {low};
  const double raw = (high - low) / std::max(count, 1);
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) {
      step = factor * power;
      break;
    }
  }
  std::vector<double> ticks;
  for (double k = std::ceil(low / step); k * step <= high + step * 1e-9; ++k)
    ticks.push_back(k * step);
  return ticks;
}

double Scale::operator()(double value) const {
  const double a = log ? std::log10(low) : low, b = log ? std::log10(high) : high;
  const double v = log ? std::log10(std::max(value, low)) : value;
  return from + (to - from) * (b > a ? (v - a) / (b - a) : 0.5);
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
  if (!any && log) scale.low = 0.1;
  if (scale.high <= scale.low) {
    scale.high = log ? scale.low * 10 : scale.low + std::max(1e-9, std::abs(scale.low) * 0.1);
    if (!log) scale.low -= scale.high - scale.low;
  } else if (log) {
    scale.high *= 1.1;
    scale.low /= 1.1;
  } else {
    const double room = 0.04 * (scale.high - scale.low);
    scale.low -= room;
    scale.high += room;
  }
  return scale;
}

std::string SeriesClass(size_t n) { return fmt::format("k{}", n % kSeriesColours); }

std::string SvgOpen(std::string_view kind, const std::string& id, const std::string& title,
                    const std::string& description, double width, double height, bool standalone) {
  std::string out;
  if (standalone) out += "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  out += fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart {}\" id=\"{}\" viewBox=\"0 0 {} "
      "{}\" role=\"img\" "
      "aria-labelledby=\"{}-t {}-d\">\n<title id=\"{}-t\">{}</title>\n<desc "
      "id=\"{}-d\">{}</desc>\n",
      kind, EscapeXml(id), width, height, EscapeXml(id), EscapeXml(id), EscapeXml(id),
      EscapeXml(title), EscapeXml(id), EscapeXml(description));
  if (standalone) out += fmt::format("<style>{}</style>\n", kStyle);
  out += fmt::format("<rect class=\"bg\" width=\"{}\" height=\"{}\"/>\n", width, height);
  out +=
      fmt::format("<text class=\"title\" x=\"{}\" y=\"22\">{}</text>\n", kLeft, EscapeXml(title));
  return out;
}

std::string SvgAxes(const Scale& x, const Scale& y, const std::string& x_label,
                    const std::string& y_label) {
  std::string out = "<g class=\"axes\">\n";
  for (double tick : NiceTicks(x.low, x.high, 7)) {
    out += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>"
        "<text class=\"soft\" text-anchor=\"middle\" x=\"{0:.1f}\" y=\"{3:.1f}\">{4}</text>\n",
        x(tick), y.from, y.to, y.from + 17, ShortNumber(tick));
  }
  std::vector<double> ticks;
  if (y.log) {
    for (double e = std::floor(std::log10(y.low)); e <= std::log10(y.high); ++e) {
      for (double factor : {1.0, 2.0, 5.0}) {
        const double tick = factor * std::pow(10, e);
        if (tick >= y.low && tick <= y.high) ticks.push_back(tick);
      }
    }
  } else {
    ticks = NiceTicks(y.low, y.high, 6);
  }
  for (double tick : ticks) {
    out += fmt::format(
        "<line class=\"grid\" x1=\"{1:.1f}\" x2=\"{2:.1f}\" y1=\"{0:.1f}\" y2=\"{0:.1f}\"/>"
        "<text class=\"soft\" text-anchor=\"end\" x=\"{3:.1f}\" y=\"{4:.1f}\">{5}</text>\n",
        y(tick), x.from, x.to, x.from - 7, y(tick) + 4, ShortNumber(tick));
  }
  out += fmt::format(
      "</g>\n<text class=\"soft\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
      (x.from + x.to) / 2, y.from + 38, EscapeXml(x_label));
  out += fmt::format(
      "<text class=\"soft\" text-anchor=\"middle\" transform=\"translate(15,{:.1f}) "
      "rotate(-90)\">{}</text>\n",
      (y.from + y.to) / 2, EscapeXml(y_label));
  return out;
}

std::string DrawSvg(const Chart& chart, bool standalone) {
  struct Draw {
    bool standalone;
    std::string operator()(const LineChart& c) const { return DrawLines(c, standalone); }
    std::string operator()(const HeatMap& c) const { return DrawHeatMap(c, standalone); }
    std::string operator()(const ScatterChart& c) const { return DrawScatter(c, standalone); }
    std::string operator()(const BarChart& c) const { return DrawBars(c, standalone); }
  };
  return std::visit(Draw{standalone}, chart) + "</svg>\n";
}

const std::string& ChartId(const Chart& chart) {
  return std::visit([](const auto& c) -> const std::string& { return c.id; }, chart);
}

const std::string& ChartTitle(const Chart& chart) {
  return std::visit([](const auto& c) -> const std::string& { return c.title; }, chart);
}

}  // namespace denseformer
