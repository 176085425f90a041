#include "perf/shape_rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/parallel.h"
#include "base/text.h"
#include "kernels/gemm/gemm.h"

namespace denseformer {
namespace {

// "8 x 256 tokens", "1, 8, 32 x 256 tokens"
std::string BatchText(const std::vector<int64_t>& batches, int64_t length) {
  return fmt::format("{} x {} tokens", fmt::join(batches, ", "), length);
}

// Each value once, in the order of the shapes.
template <typename T>
std::vector<T> Distinct(const std::vector<BenchShape>& shapes, T BenchShape::*member) {
  std::vector<T> values;
  for (const BenchShape& shape : shapes) {
    if (std::find(values.begin(), values.end(), shape.*member) == values.end())
      values.push_back(shape.*member);
  }
  return values;
}

// What tells this shape from the others: "", "48 blocks" or "48 blocks, 8 x 256 tokens".
std::string ShapeName(const ModelBenchOptions& options, const BenchShape& shape) {
  std::vector<std::string> parts;
  if (Distinct(options.shapes, &BenchShape::blocks).size() > 1)
    parts.push_back(fmt::format("{} blocks", shape.blocks));
  if (Distinct(options.shapes, &BenchShape::batch).size() > 1)
    parts.push_back(BatchText({shape.batch}, options.length));
  return Join(parts, ", ");
}

}  // namespace

ShapeRows::ShapeRows(const ModelBenchOptions& options, const BenchShape& shape)
    : options_(options), shape_(shape), name_(ShapeName(options, shape)) {}

BenchRow& ShapeRows::Add(const std::string& label, const std::string& pattern,
                         std::function<void()> run) {
  const int64_t tokens = shape_.batch * options_.length;
  BenchRow row;
  row.work = static_cast<double>(tokens);
  row.unit = "tokens";
  row.point = BenchPoint{shape_.blocks, tokens, pattern, /*recompute=*/false};
  if (!rows_.empty()) {
    row.limit = 0;
    row.baseline = 1;
  }
  rows_.push_back(std::move(row));
  variants_.push_back({name_.empty() ? label : name_ + ", " + label, std::move(run)});
  return rows_.back();
}

std::vector<BenchRow> ShapeRows::Measure() {
  InterleaveOptions interleave = options_.interleave;
  if (!interleave.title.empty() && !name_.empty()) interleave.title += ", " + name_;
  const std::vector<Timing> timings = Interleave(variants_, interleave);
  for (size_t r = 0; r < rows_.size(); ++r) rows_[r].timing = timings[r];
  return std::move(rows_);
}

BenchTable ByShape(std::string title, const ModelBenchOptions& options, MeasureShape& measure) {
  BenchTable table;
  table.title = std::move(title);
  table.settings = {
      {"width", std::to_string(options.config.n_embd)},
      {"blocks", fmt::format("{}", fmt::join(Distinct(options.shapes, &BenchShape::blocks), ", "))},
      {"batch", BatchText(Distinct(options.shapes, &BenchShape::batch), options.length)},
      {"mixer", fmt::format("{}, streams {}, norm {}", options.config.mixer, options.config.streams,
                            options.config.mixer_norm)},
      {"precision", WeightFormatName(options.format)},
      {"weights", options.frozen ? "frozen" : "with fp32 masters"},
      {"threads", std::to_string(NumThreads())},
      {"gemm", options.frozen ? fmt::format("{}; alone: {}", FrozenGemmDescription(options.format),
                                            GemmDescription())
                              : GemmDescription()}};
  for (const BenchShape& shape : options.shapes) {
    const int first = static_cast<int>(table.rows.size());
    for (BenchRow& row : measure(options, shape)) {
      if (row.limit >= 0) row.limit += first;
      if (row.baseline >= 0) row.baseline += first;
      table.rows.push_back(std::move(row));
    }
  }
  return table;
}

}  // namespace denseformer
