// AdamW with decoupled weight decay, one pass over the memory:
//   m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   w = w (1 - rate * decay) - rate * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
#ifndef DENSEFORMER_KERNELS_ADAMW_H_
#define DENSEFORMER_KERNELS_ADAMW_H_

#include <cstdint>
#include <span>

#include "tensor/tensor.h"

namespace denseformer {

struct AdamWStep {
  float rate = 1e-3f;
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float epsilon = 1e-8f;
  float decay = 0.1f;
  int64_t step = 1;          // t, from 1
  float gradient_scale = 1;  // multiplies g first (clipping, mean over accumulated batches)
};

// All of equal length.
void AdamWUpdate(const AdamWStep& step, std::span<float> weights, std::span<const float> gradients,
                 std::span<float> first_moment, std::span<float> second_moment);

// Sum of squares in fp64 over fixed partitions: the same whatever the number of threads. Not finite
// where any value is not.
double SumOfSquares(std::span<const float> values);

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_ADAMW_H_
