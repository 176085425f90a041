// RMS norm over rows, without a scale: out = x * rstd, rstd = 1 / sqrt(mean(x^2) + 1e-6).
#ifndef DENSEFORMER_KERNELS_RMSNORM_H_
#define DENSEFORMER_KERNELS_RMSNORM_H_

#include "tensor/tensor.h"

namespace denseformer {

inline constexpr float kRmsNormEpsilon = 1e-6f;

// x [N, D] fp32; out [N, D] fp32 or bf16; rstd [N] fp32.
void RmsNormForward(const Tensor& x, const Tensor& out, const Tensor& rstd);

// dx [N, D] fp32 += rstd * (dout - out * <dout, out> / D); out as RmsNormForward stored it, dout of
// the same dtype.
void RmsNormBackward(const Tensor& dout, const Tensor& out, const Tensor& rstd, const Tensor& dx);

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_RMSNORM_H_
