#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "chart/svg.h"

namespace denseformer {
namespace {

constexpr double kScaleWidth = 74;  // of the legend of colors
constexpr double kNumberCell = 31;  // cells from here on show their number

// Colors come from the sign (a class) and the opacity, so that 0 is the background in light and
// dark alike.
struct Cell {
  const char* sign;
  double opacity;
};
Cell CellOf(double value, double limit) {
  return {value < 0 ? "neg" : "pos", std::min(1.0, std::abs(value) / limit)};
}

double LargestSize(const std::vector<std::vector<double>>& values) {
  double largest = 0;
  for (const auto& row : values) {
    for (double value : row) {
      if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
    }
  }
  return largest > 0 ? largest : 1;
}

std::string Opacity(double value) {
  const std::string text = fmt::format("{:.2f}", value);
  return value < 0.995 ? text.substr(1) : "1";
}

std::string ColorScale(const HeatMap& chart, double limit, double top, double height) {
  const bool diverging = chart.diverging;
  const double x = kChartWidth - kRight - kScaleWidth + 16;
  constexpr int kSteps = 32;
  std::string out = "<g class=\"scale\">\n";
  for (int i = 0; i < kSteps; ++i) {
    const double part = static_cast<double>(i) / (kSteps - 1);
    const Cell cell = CellOf(diverging ? 1 - 2 * part : 1 - part, 1);
    out += fmt::format(
        "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.2f}\" width=\"11\" height=\"{:.2f}\" "
        "fill-opacity=\"{}\"/>",
        cell.sign, x, top + height * i / kSteps, height / kSteps, Opacity(cell.opacity));
  }
  out += fmt::format(
      "\n<rect class=\"frame\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"11\" height=\"{:.1f}\"/>\n", x,
      top, height);
  const bool cut = LargestSize(chart.values) > limit * 1.0001;
  const auto label = [&](double at, const std::string& text) {
    out += fmt::format("<text class=\"soft\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", x + 16,
                       top + height * at + 4, text);
  };
  label(0, (cut ? "≥ " : "") + fmt::format("{:.2g}", limit));
  label(diverging ? 0.5 : 1, "0");
  if (diverging) label(1, (cut ? "≤ " : "") + fmt::format("{:.2g}", -limit));
  return out + "</g>\n";
}

class HeatMapDrawing {
 public:
  HeatMapDrawing(const HeatMap& chart, bool standalone) : chart_(chart), standalone_(standalone) {
    for (size_t i = 0; i < chart.values.size(); ++i) {
      columns_ = std::max(columns_, chart.values[i].size());
      if (std::any_of(chart.values[i].begin(), chart.values[i].end(),
                      [](double value) { return std::isfinite(value); })) {
        rows_.push_back(i);
      }
    }
    width_ = std::min((kChartWidth - kLeft - kRight - kScaleWidth) /
                          static_cast<double>(std::max<size_t>(columns_, 1)),
                      60.0);
    // A few rows of a deep model are drawn higher than wide.
    const double least =
        std::min(26.0, 120.0 / static_cast<double>(std::max<size_t>(rows_.size(), 1)));
    height_ = std::min(std::max(width_, least), 34.0);
    top_ = PlotTop(standalone);
    bottom_ = top_ + height_ * static_cast<double>(std::max<size_t>(rows_.size(), 1));
    limit_ = chart.limit > 0 ? chart.limit : LargestSize(chart.values);
  }

  std::string Draw() const {
    const double scale_height = std::clamp(bottom_ - top_, 70.0, 200.0);
    const double all = std::max(bottom_ + kBottom, top_ + scale_height + 12);
    std::string out =
        SvgOpen("heat", chart_.id, chart_.title, chart_.description, all, standalone_);
    out += Cells() + Labels();
    return out + ColorScale(chart_, limit_, top_, scale_height);
  }

 private:
  double Left(size_t column) const { return kLeft + width_ * static_cast<double>(column); }
  double Top(size_t row) const { return top_ + height_ * static_cast<double>(row); }
  double Value(size_t row, size_t column) const {
    const auto& values = chart_.values[rows_[row]];
    return column < values.size() ? values[column] : NAN;
  }
  double Error(size_t row, size_t column) const {
    if (rows_[row] >= chart_.errors.size()) return NAN;
    const auto& errors = chart_.errors[rows_[row]];
    return column < errors.size() ? errors[column] : NAN;
  }

  std::string Title(size_t row, size_t column) const {
    std::string text = fmt::format("{} {}, {} {}: {}", chart_.row_word, rows_[row],
                                   chart_.column_word, column, ShortNumber(Value(row, column)));
    const double error = Error(row, column);
    if (std::isfinite(error)) text += fmt::format(" ± {}", ShortNumber(error));
    return EscapeXml(text);
  }

  // data-values and data-errors: rows divided by ;, cells by , for the script.
  std::string Data(bool errors) const {
    std::string out;
    for (size_t row = 0; row < rows_.size(); ++row) {
      if (row > 0) out += ';';
      for (size_t column = 0; column < columns_; ++column) {
        const double value = errors ? Error(row, column) : Value(row, column);
        if (column > 0) out += ',';
        if (std::isfinite(value)) out += fmt::format("{:.4g}", value);
      }
    }
    return out;
  }

  std::string Cells() const {
    std::string names;
    for (size_t row : rows_) names += (names.empty() ? "" : ",") + std::to_string(row);
    std::string out = "<g class=\"cells\"";
    if (!standalone_) {
      out += fmt::format(
          " data-box=\"{},{},{},{}\" data-rows=\"{}\" data-row-word=\"{}\" "
          "data-column-word=\"{}\" data-values=\"{}\"",
          kLeft, top_, width_, height_, names, EscapeXml(chart_.row_word),
          EscapeXml(chart_.column_word), Data(/*errors=*/false));
      if (!chart_.errors.empty()) out += fmt::format(" data-errors=\"{}\"", Data(/*errors=*/true));
    }
    out += ">\n";
    out += standalone_ ? TitledCells() : PaintedCells();
    return out + CellNumbers() + "</g>\n";
  }

  double Gap() const { return std::min(1.0, width_ * 0.06); }

  // One element a cell, with its value as a label of its own.
  std::string TitledCells() const {
    std::string out;
    ForEachCell([&](size_t row, size_t column, const Cell& cell) {
      out += fmt::format(
          "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
          "fill-opacity=\"{}\"><title>{}</title></rect>\n",
          cell.sign, Left(column), Top(row), width_ - Gap(), height_ - Gap(), Opacity(cell.opacity),
          Title(row, column));
    });
    return out;
  }

  // One element a color, of at most kLevels a sign: ten deep models have 25,000 cells, which would
  // make a page slow to open.
  std::string PaintedCells() const {
    constexpr double kLevels = 40;
    std::map<std::pair<std::string, int>, std::string> paths;
    ForEachCell([&](size_t row, size_t column, const Cell& cell) {
      paths[{cell.sign, static_cast<int>(std::lround(cell.opacity * kLevels))}] +=
          fmt::format("M{:.1f} {:.1f}h{:.1f}v{:.1f}h{:.1f}z", Left(column), Top(row),
                      width_ - Gap(), height_ - Gap(), Gap() - width_);
    });
    std::string out;
    for (const auto& [color, path] : paths) {
      out += fmt::format("<path class=\"{}\" fill-opacity=\"{}\" d=\"{}\"/>\n", color.first,
                         Opacity(color.second / kLevels), path);
    }
    return out;
  }

  std::string CellNumbers() const {
    std::string out;
    if (width_ < kNumberCell) return out;
    ForEachCell([&](size_t row, size_t column, const Cell& cell) {
      out += fmt::format(
          "<text class=\"{}\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{:.1f}\">{:.2f}</text>\n",
          cell.opacity > 0.6 ? "number on" : "number", Left(column) + (width_ - Gap()) / 2,
          Top(row) + height_ / 2 + 3.5, Value(row, column));
    });
    return out;
  }

  template <class F>
  void ForEachCell(F&& work) const {
    for (size_t row = 0; row < rows_.size(); ++row) {
      for (size_t column = 0; column < columns_; ++column) {
        const double value = Value(row, column);
        if (std::isfinite(value)) work(row, column, CellOf(value, limit_));
      }
    }
  }

  std::string Labels() const {
    std::string out;
    const size_t column_step = static_cast<size_t>(std::ceil(20 / width_));
    for (size_t column = 0; column < columns_; column += column_step) {
      out += fmt::format(
          "<text class=\"soft\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>",
          Left(column) + width_ / 2, bottom_ + 16, column);
    }
    const size_t row_step = static_cast<size_t>(std::ceil(14 / height_));
    for (size_t row = 0; row < rows_.size(); row += row_step) {
      out += fmt::format(
          "<text class=\"soft\" text-anchor=\"end\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", kLeft - 6,
          Top(row) + height_ / 2 + 4, rows_[row]);
    }
    return out + "\n" +
           SvgAxisLabels(kLeft, Left(columns_), top_, bottom_, chart_.x_label, chart_.y_label);
  }

  const HeatMap& chart_;
  const bool standalone_;
  std::vector<size_t> rows_;  // those that have cells
  size_t columns_ = 0;
  double width_ = 0, height_ = 0, top_ = 0, bottom_ = 0, limit_ = 1;
};

}  // namespace

std::string DrawHeatMap(const HeatMap& chart, bool standalone) {
  return HeatMapDrawing(chart, standalone).Draw();
}

}  // namespace denseformer
