// Averaging of long series.
#include <algorithm>
#include <cmath>

#include "chart/chart.h"

namespace denseformer {

Series Averaged(const Series& series, size_t most) {
  const size_t n = series.x.size();
  if (series.counts.empty() || n <= most) return series;
  Series means;
  means.name = series.name;
  means.color = series.color;
  means.group = series.group;
  const size_t stretch = (n + most - 1) / most;
  for (size_t begin = 0; begin < n; begin += stretch) {
    double x = 0, y = 0, count = 0, points = 0;
    for (size_t i = begin; i < std::min(n, begin + stretch); ++i) {
      if (!std::isfinite(series.x[i]) || !std::isfinite(series.y[i])) continue;
      x += series.x[i] * series.counts[i];
      y += series.y[i] * series.counts[i];
      count += series.counts[i];
      ++points;
    }
    if (points == 0) continue;
    means.x.push_back(x / count);
    means.y.push_back(y / count);
    means.counts.push_back(count);
  }
  return means;
}

}  // namespace denseformer
