// How fast this machine does the matrix products of a model when nothing else is done: what the
// speed of training is compared with.
#ifndef DENSEFORMER_TRAIN_GEMM_RATE_H_
#define DENSEFORMER_TRAIN_GEMM_RATE_H_

#include <cstdint>

#include "denseformer/config.h"
#include "tensor/dtype.h"

namespace denseformer {

struct GemmRate {
  // Of the products of a training step alone.
  double seconds_per_token = 0;

  // The share of the machine's rate that a step of `tokens` in `seconds` kept.
  double Share(int64_t tokens, double seconds) const {
    return seconds > 0 ? seconds_per_token * static_cast<double>(tokens) / seconds : 0;
  }
};

// Measures for some 50 ms on batches of `rows` tokens (once where one measurement takes longer).
GemmRate MeasureGemmRate(const ModelConfig& config, DType compute, int64_t rows);

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_GEMM_RATE_H_
