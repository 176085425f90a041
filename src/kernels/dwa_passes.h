// The two passes over memory behind the depth-weighted average (dwa.h), each over a range of
// elements on the calling thread. A range begins at a multiple of kAverageTile, so that an element
// is computed in the same way whatever the ranges are.
#ifndef DENSEFORMER_KERNELS_DWA_PASSES_H_
#define DENSEFORMER_KERNELS_DWA_PASSES_H_

#include <cstdint>
#include <span>

#include "tensor/tensor.h"

namespace denseformer {

inline constexpr int64_t kAverageTile = 128;
// Dot products are summed over this many parts of the elements, then over the parts in order.
inline constexpr int64_t kDotPartitions = 128;

struct AverageTerm {
  const void* data;
  DType dtype;
  float weight;
};

// y[e] = sum over terms of weight * data[e], in their order; 0 without terms. y may alias a term.
void AverageRange(std::span<const AverageTerm> terms, int64_t begin, int64_t end, float* y);

// sum[e] = sum over the terms (fp32) whose weight is not 0, in their order; dx[e] = sum[e], or
// dx[e] + sum[e] with `add` (unchanged where no weight differs from 0).
// dots[k] = sum over e of term k * x, one for each term.
void PullRange(std::span<const AverageTerm> terms, const Tensor& x, int64_t begin, int64_t end,
               bool add, float* dx, double* dots);

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_DWA_PASSES_H_
