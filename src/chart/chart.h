// Charts as data, and their drawing as SVG.
//
// A drawing carries a title and a description for those who do not see it, takes its colours from
// CSS variables with values for light and dark, and has no scripts. Standing alone it shows title,
// legend and the values of its cells by itself; in the report these are parts of the page, and the
// script adds hovering and zooming by the data-* attributes.
#ifndef DENSEFORMER_CHART_CHART_H_
#define DENSEFORMER_CHART_CHART_H_

#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace denseformer {

struct Series {
  std::string name;
  std::vector<double> x, y;
  int colour = -1;  // number of the colour, to keep it over several charts; -1: by position
  // Standard errors of y, NaN or 0 for none; empty, or as many as y. Drawn as whiskers where the
  // chart stands alone: the script of the report redraws lines alone.
  std::vector<double> errors = {};
};

struct LineChart {
  std::string id, title, description, x_label, y_label;
  std::vector<Series> series;
  bool log_y = false;
  bool from_zero = false;  // the y axis reaches 0: for shares and costs, whose size must be seen
  bool ticks_at_points = false;  // the x axis shows the values of x: for few that were chosen
};

// values[row][column], NaN for no cell; rows without any cell are left out of the drawing. Colours
// run from blue over the background at 0 to orange.
struct HeatMap {
  std::string id, title, description, x_label, y_label;
  std::string row_word, column_word;  // "after block", "source": how a cell is spoken of
  std::vector<std::vector<double>> values;
  std::vector<std::vector<double>> errors;  // empty, or of the same shape
  // Size of a value from which on colours stay the same; 0: the largest one.
  double limit = 0;
  bool diverging = true;  // false: no value is below 0
};

struct Point {
  double x = 0, y = 0;
  std::string label;  // printed beside it
  std::string group;  // decides the colour; a line joins those of a group with different labels
  std::string name;   // of the run, shown on hover
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

// `standalone` adds the XML header, colours, title, legend and <title> elements with the values, so
// that the file can be opened by itself.
std::string DrawSvg(const Chart& chart, bool standalone);

const std::string& ChartId(const Chart& chart);
const std::string& ChartTitle(const Chart& chart);
const std::string& ChartDescription(const Chart& chart);

struct LegendEntry {
  std::string name;
  size_t colour = 0;  // for SeriesClass of svg.h
};
// Empty where the chart needs no legend.
std::vector<LegendEntry> ChartLegend(const Chart& chart);

}  // namespace denseformer

#endif  // DENSEFORMER_CHART_CHART_H_
