// Dropout as a pure function: element `index` of the use `stream` is kept or not whatever the
// number of threads, and the backward pass finds the same mask without storing it.
#ifndef DENSEFORMER_KERNELS_DROPOUT_H_
#define DENSEFORMER_KERNELS_DROPOUT_H_

#include <cstdint>

#include "base/random.h"
#include "tensor/tensor.h"

namespace denseformer {

struct Dropout {
  float probability = 0;  // 0 switches it off
  uint64_t seed = 0;      // of the run
  uint64_t stream = 0;    // the step and the place in the model
  uint64_t first = 0;     // added to every index: where a part of a tensor begins in the whole

  bool enabled() const { return probability > 0; }

  // What element `index` is multiplied with: 0, or 1 / (1 - probability).
  float Scale(uint64_t index) const {
    index += first;
    const uint32_t bits = Philox(seed, stream, index / 4)[index % 4];
    return static_cast<float>(bits >> 8) * 0x1p-24f < probability ? 0.0f
                                                                  : 1.0f / (1.0f - probability);
  }

  // scales[i] = Scale(index + i) for i in [0, n).
  void FillScales(uint64_t index, int64_t n, float* scales) const;
};

// x *= mask, element by element of x (fp32); the gradient goes through the same call. Does nothing
// where dropout is off.
void ApplyDropout(const Dropout& dropout, const Tensor& x);

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_DROPOUT_H_
