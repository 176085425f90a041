#include "analysis/similarity.h"

#include <algorithm>
#include <cmath>

#include "analysis/observe.h"
#include "base/parallel.h"

namespace denseformer {
namespace {

// Sums of one depth over rows, in the order of the rows.
struct RowSums {
  double cosine = 0, norm_x = 0, norm_y = 0;
};

double Dot(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

class Measurement {
 public:
  explicit Measurement(int depth) : sums_(depth + 1) {}

  void See(int i, const Tensor& x, const Tensor& y) {
    const int64_t rows = x.rows(), cols = x.cols();
    if (i == 0) {
      first_.assign(x.f32(), x.f32() + rows * cols);
      first_norms_.resize(rows);
    }
    rows_.assign(rows, RowSums());
    ParallelFor(rows, 16, [&](int64_t begin, int64_t end, int) {
      for (int64_t n = begin; n < end; ++n) {
        const float *x_row = x.f32() + n * cols, *y_row = y.f32() + n * cols,
                    *first = first_.data() + n * cols;
        if (i == 0) first_norms_[n] = std::sqrt(Dot(first, first, cols));
        RowSums& row = rows_[n];
        row.norm_x = std::sqrt(Dot(x_row, x_row, cols));
        row.norm_y = std::sqrt(Dot(y_row, y_row, cols));
        const double product = row.norm_y * first_norms_[n];
        row.cosine = product > 0 ? Dot(y_row, first, cols) / product : 0;
      }
    });
    for (const RowSums& row : rows_) {
      sums_[i].cosine += row.cosine;
      sums_[i].norm_x += row.norm_x;
      sums_[i].norm_y += row.norm_y;
    }
  }

  DepthSimilarity Means(int64_t tokens) const {
    DepthSimilarity result;
    result.tokens = tokens;
    const double n = static_cast<double>(std::max<int64_t>(tokens, 1));
    for (const RowSums& sum : sums_) {
      result.cosine_y.push_back(sum.cosine / n);
      result.norm_x.push_back(sum.norm_x / n);
      result.norm_y.push_back(sum.norm_y / n);
    }
    return result;
  }

 private:
  std::vector<RowSums> sums_, rows_;
  std::vector<float> first_;
  std::vector<double> first_norms_;
};

}  // namespace

DepthSimilarity MeasureSimilarity(const Model& model, const TokenFile& file, int64_t most_tokens) {
  Measurement measurement(model.config().n_layer);
  const int64_t tokens = ObserveDepths(
      model, file, most_tokens,
      [&](int i, const Tensor& x, const Tensor& y, Activations&) { measurement.See(i, x, y); });
  return measurement.Means(tokens);
}

}  // namespace denseformer
