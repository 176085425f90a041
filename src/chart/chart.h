// Charts as data, and their drawing as SVG.
//
// A drawing carries a title and a description for screen readers, has colors for light and dark,
// and no scripts. Standing alone it shows title, legend and the values of its cells; in the report
// these are parts of the page, whose script adds hovering, zooming and smoothing through the data-*
// attributes.
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
  int color = -1;  // number of the color, to keep it over several charts; -1: by position
  // Standard errors of y, NaN or 0 for none; empty, or as many as y. Drawn as whiskers where the
  // chart stands alone: the script of the report redraws lines alone.
  std::vector<double> errors = {};
  // How many recorded values each point is the mean of; empty, or as many as y. Such a series is
  // averaged further where it has more points than can be told apart.
  std::vector<double> counts = {};
  // The band around the line, empty or as many as y.
  std::vector<double> low = {}, high = {};
  // Number of the group whose members can be shown as one band: a series with `low` and `high` is
  // the band, the others are members; -1: none.
  int group = -1;
};

// Means over stretches of equal length, weighted by `counts`, at most `most` of them. Values that
// are not finite are left out. A series without counts comes back as it is.
Series Averaged(const Series& series, size_t most);

struct LineChart {
  std::string id, title, description, x_label, y_label;
  std::vector<Series> series;
  bool log_y = false;
  bool from_zero = false;  // the y axis reaches 0: for shares and costs, whose size must be seen
  bool ticks_at_points = false;  // the x axis shows the values of x: for few that were chosen
  bool shared_legend = false;    // the series are in the legend of the page, by their colors
  bool smoothable = false;       // noisy: the page offers to smooth it
  std::string count_word = {};   // what `counts` of the series count: "logged steps"
  bool log_x = false;
};

// values[row][column], NaN for no cell; rows without any cell are left out of the drawing. Colors
// run from blue over the background at 0 to orange.
struct HeatMap {
  std::string id, title, description, x_label, y_label;
  std::string row_word, column_word;  // "after block", "source": how a cell is spoken of
  std::vector<std::vector<double>> values;
  std::vector<std::vector<double>> errors;  // empty, or of the same shape
  // Size of a value from which on colors stay the same; 0: the largest one.
  double limit = 0;
  bool diverging = true;  // false: no value is below 0
};

struct Point {
  double x = 0, y = 0;
  std::string label;  // printed beside it
  std::string group;  // a line joins those of a group with different labels
  std::string name;   // of the run, shown on hover
  int color = -1;     // as in Series; -1: by group
};

struct ScatterChart {
  std::string id, title, description, x_label, y_label;
  std::vector<Point> points;
};

struct BarChart {
  std::string id, title, description, value_label;
  std::vector<std::pair<std::string, double>> bars;
};

// Work in rows over time: a schedule.
struct TimelineBox {
  int row = 0;
  int kind = 0;  // its color, and its place in `kinds`
  double begin = 0, end = 0;
  std::string label, name;  // inside the box, and on hover
};

struct TimelineChart {
  std::string id, title, description, x_label;
  std::vector<std::string> rows, kinds;
  std::vector<TimelineBox> boxes;
};

using Chart = std::variant<LineChart, HeatMap, ScatterChart, BarChart, TimelineChart>;

// `standalone` adds the XML header, colors, title, legend and <title> elements with the values, so
// that the file can be opened by itself.
std::string DrawSvg(const Chart& chart, bool standalone);

const std::string& ChartId(const Chart& chart);
const std::string& ChartTitle(const Chart& chart);
const std::string& ChartDescription(const Chart& chart);

struct LegendEntry {
  std::string name;
  size_t color = 0;  // for SeriesClass of svg.h
};
// Empty where the chart needs no legend. The colors of a shared legend stand in it too.
std::vector<LegendEntry> ChartLegend(const Chart& chart);

}  // namespace denseformer

#endif  // DENSEFORMER_CHART_CHART_H_
