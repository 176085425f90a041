#include "model/gradient_norm.h"

#include <cmath>

#include "kernels/adamw.h"

namespace denseformer {

double SquaredGradientNorm(const Model& model, double matrix_squares) {
  const std::span<const float> gradients = model.gradients();
  const bool known = std::isfinite(matrix_squares);
  double sum = known ? matrix_squares : 0;
  for (const Parameter& p : model.table().all()) {
    if (!p.counted) continue;
    if (known && p.matrix() && p.block > 0) continue;
    sum += SumOfSquares(
        gradients.subspan(static_cast<size_t>(p.offset), static_cast<size_t>(p.count())));
  }
  return sum;
}

}  // namespace denseformer
