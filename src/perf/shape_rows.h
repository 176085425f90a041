// Measuring a list of shapes, each with its limit and all its patterns in the same rounds.
#ifndef DENSEFORMER_PERF_SHAPE_ROWS_H_
#define DENSEFORMER_PERF_SHAPE_ROWS_H_

#include <functional>
#include <string>
#include <vector>

#include "perf/model_bench.h"

namespace denseformer {

// The rows of one shape: first the limit, then the baseline, then what is compared with both.
class ShapeRows {
 public:
  ShapeRows(const ModelBenchOptions& options, const BenchShape& shape);

  // `pattern` is empty for the limit. The reference lives until the next call.
  BenchRow& Add(const std::string& label, const std::string& pattern, std::function<void()> run);
  int last() const { return static_cast<int>(rows_.size()) - 1; }

  // All rows; once.
  std::vector<BenchRow> Measure();

 private:
  const ModelBenchOptions& options_;
  BenchShape shape_;
  std::string name_;  // what tells this shape from the others
  std::vector<BenchRow> rows_;
  std::vector<Variant> variants_;
};

using MeasureShape = std::vector<BenchRow>(const ModelBenchOptions& options,
                                           const BenchShape& shape);

// The table of all shapes, measured one after another.
BenchTable ByShape(std::string title, const ModelBenchOptions& options, MeasureShape& measure);

}  // namespace denseformer

#endif  // DENSEFORMER_PERF_SHAPE_ROWS_H_
