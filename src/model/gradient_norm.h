// The norm of the gradient, with as little reading of memory as can be.
#ifndef DENSEFORMER_MODEL_GRADIENT_NORM_H_
#define DENSEFORMER_MODEL_GRADIENT_NORM_H_

#include "model/model.h"

namespace denseformer {

// Sum of the squares of model.gradients(). `matrix_squares` is that of the blocks' matrices, most
// of the model, which the GEMMs of the last backward pass took while they wrote them
// (Activations::matrix_squares); the rest, which is still added to after its GEMM, is read here,
// and all of it where matrix_squares is not finite: the GEMMs square in fp32.
double SquaredGradientNorm(const Model& model, double matrix_squares);

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_GRADIENT_NORM_H_
