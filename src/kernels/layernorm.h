// LayerNorm over rows: out = (x - mean) * rstd * weight (+ bias), rstd = 1 / sqrt(var + 1e-5).
#ifndef DENSEFORMER_KERNELS_LAYERNORM_H_
#define DENSEFORMER_KERNELS_LAYERNORM_H_

#include "tensor/tensor.h"

namespace denseformer {

inline constexpr float kLayerNormEpsilon = 1e-5f;

// x [N, D] fp32; weight [D]; bias [D] or empty; out [N, D] fp32 or bf16; mean, rstd [N] fp32 (both
// may be empty where no backward pass follows).
void LayerNormForward(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& out,
                      const Tensor& mean, const Tensor& rstd);

struct LayerNormGradients {
  Tensor dresidual;  // [N, D] fp32, the gradient that bypasses the norm; empty: none
  Tensor dx;       // [N, D] fp32 = dresidual + gradient through the norm; may alias dresidual or x
  Tensor dweight;  // [D] fp32, added to
  Tensor dbias;    // [D] fp32, added to; empty: none
  Tensor scratch;  // [LayerNormScratch(D)] fp32
};

// Size of the scratch tensor: partial sums over fixed partitions of the rows, so that dweight does
// not depend on the number of threads.
int64_t LayerNormScratch(int64_t cols);

// The parts of that reduction, for kernels that have a LayerNorm in their pass: the number of
// partitions of the rows (it depends on nothing else); partition p sums dweight at
// scratch + p * 2 * D and dbias behind it, and the last step adds them up.
inline constexpr int64_t kMostLayerNormPartitions = 64;
int64_t LayerNormPartitions(int64_t rows);
void AddLayerNormPartitions(const float* scratch, int64_t partitions, const Tensor& dweight,
                            const Tensor& dbias);

// dout [N, D] fp32 or bf16.
void LayerNormBackward(const Tensor& dout, const Tensor& x, const Tensor& weight,
                       const Tensor& mean, const Tensor& rstd, const LayerNormGradients& gradients);

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_LAYERNORM_H_
