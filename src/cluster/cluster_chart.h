// Layouts as charts: the schedule of a step, and what a scaling study found.
#ifndef DENSEFORMER_CLUSTER_CLUSTER_CHART_H_
#define DENSEFORMER_CLUSTER_CLUSTER_CHART_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "chart/chart.h"
#include "cluster/layout.h"

namespace denseformer {

// The passes of every stage and what comes after them.
TimelineChart ScheduleChart(const Layout& layout, const std::string& name);

// A quantity of the studies against the number of ranks (or stages), a line for each study. A study
// is the result of `cluster --up-to --json`: {"name", "rows": [{"ranks", "stages", KEY}]}.
struct StudyAxis {
  std::string x_key, y_key, x_label, y_label, title;
  double scale = 1;  // of y
};
LineChart StudyChart(const std::vector<nlohmann::ordered_json>& studies, const StudyAxis& axis);

}  // namespace denseformer

#endif  // DENSEFORMER_CLUSTER_CLUSTER_CHART_H_
