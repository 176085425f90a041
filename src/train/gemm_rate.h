// How fast this machine does the GEMMs of a model when nothing else is done: what the
// speed of training is compared with.
#ifndef DENSEFORMER_TRAIN_GEMM_RATE_H_
#define DENSEFORMER_TRAIN_GEMM_RATE_H_

#include <algorithm>
#include <cstdint>

#include "denseformer/config.h"
#include "tensor/dtype.h"

namespace denseformer {

struct GemmRate {
  // Of the GEMMs of a training step alone.
  double seconds_per_token = 0;

  // A step takes at least the time of its GEMMs: where one was faster than the measurement (on a
  // machine that was busy then), it is the better one. So no share is above 1.
  void Observe(int64_t tokens, double seconds) {
    seconds_per_token = std::min(seconds_per_token, seconds / static_cast<double>(tokens));
  }

  // The share of the machine's rate that a step of `tokens` in `seconds` kept.
  double Share(int64_t tokens, double seconds) const {
    return seconds > 0 ? seconds_per_token * static_cast<double>(tokens) / seconds : 0;
  }
};

// Measures for some 50 ms on batches of `rows` tokens (once where one measurement takes longer).
GemmRate MeasureGemmRate(const ModelConfig& config, DType compute, int64_t rows);

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_GEMM_RATE_H_
