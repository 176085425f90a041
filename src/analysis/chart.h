// Charts as data, and their drawing as SVG.
//
// A drawing carries a title and a description for those who do not see it, takes its colours from
// CSS variables with defaults for light and dark, and has no scripts; the report adds hovering and
// zooming by the data-* attributes.
#ifndef DENSEFORMER_ANALYSIS_CHART_H_
#define DENSEFORMER_ANALYSIS_CHART_H_

#include <string>
#include <variant>
#include <vector>

namespace denseformer {

struct Series {
  std::string name;
  std::vector<double> x, y;
  std::vector<double> error;  // half width of the band around y; empty: none
};

struct LineChart {
  std::string id, title, description, x_label, y_label;
  std::vector<Series> series;
  bool log_y = false;
};

// values[row][column], NaN for no cell. Colours run from blue over neutral at 0 to orange.
struct HeatMap {
  std::string id, title, description, x_label, y_label;
  std::vector<std::vector<double>> values;
  std::vector<std::vector<double>> errors;  // empty, or of the same shape
};

struct Point {
  double x = 0, y = 0;
  std::string label;  // printed beside it
  std::string group;  // decides the colour
};

struct ScatterChart {
  std::string id, title, description, x_label, y_label;
  std::vector<Point> points;
};

struct BarChart {
  std::string id, title, description, value_label;
  std::vector<std::pair<std::string, double>> bars;
};

using Chart = std::variant<LineChart, HeatMap, ScatterChart, BarChart>;

// `standalone` adds the XML header and colours, so that the file can be opened by itself.
std::string DrawSvg(const Chart& chart, bool standalone);

const std::string& ChartId(const Chart& chart);
const std::string& ChartTitle(const Chart& chart);

}  // namespace denseformer

#endif  // DENSEFORMER_ANALYSIS_CHART_H_
