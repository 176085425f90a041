// Gradients of the parameters of a linear layer y = x W^T + bias.
#ifndef DENSEFORMER_MODEL_WEIGHT_BACKWARD_H_
#define DENSEFORMER_MODEL_WEIGHT_BACKWARD_H_

#include "kernels/gemm/gemm.h"
#include "model/activations.h"
#include "model/model.h"

namespace denseformer {

// dweight is replaced or added to, its squares are counted in activations.matrix_squares; dbias,
// where not empty, is added to.
inline void WeightBackward(const Tensor& dy, const Tensor& x, const Tensor& dweight,
                           const Tensor& dbias, Gradients gradients, Activations& activations) {
  double squares;
  LinearBackwardWeight(dy, x, dweight, /*add=*/gradients == Gradients::kAdd, &squares);
  activations.matrix_squares += squares;
  if (!dbias.empty()) LinearBackwardBias(dy, dbias);
}

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_WEIGHT_BACKWARD_H_
