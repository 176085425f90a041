// Curves of training: losses, learning rate, gradient norm and throughput of several runs.
#ifndef DENSEFORMER_ANALYSIS_REPORT_CURVES_H_
#define DENSEFORMER_ANALYSIS_REPORT_CURVES_H_

#include <span>
#include <vector>

#include "analysis/run_data.h"
#include "chart/chart.h"

namespace denseformer {

// What the curves are drawn against.
struct CurveAxis {
  const char* key;    // in the names of charts
  const char* label;  // of the axis
  std::vector<double> Curve::*values;
};
std::span<const CurveAxis> CurveAxes();

// One chart per quantity with a line per run, in the color of the run's position; none where no run
// recorded the quantity. Runs that differ in nothing but their seed also get a line of their mean
// and a band from the lowest to the highest.
std::vector<Chart> CurveCharts(const std::vector<RunData>& runs, const CurveAxis& axis);

// Runs that differ in nothing but their seed: for each such set of two or more their positions.
std::vector<std::vector<size_t>> SeedGroups(const std::vector<RunData>& runs);

}  // namespace denseformer

#endif  // DENSEFORMER_ANALYSIS_REPORT_CURVES_H_
