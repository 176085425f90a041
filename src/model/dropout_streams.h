// Where dropout acts, and the stream of random numbers of each place.
#ifndef DENSEFORMER_MODEL_DROPOUT_STREAMS_H_
#define DENSEFORMER_MODEL_DROPOUT_STREAMS_H_

#include <cstdint>

#include "kernels/dropout.h"

namespace denseformer {

// Dropout of a training pass; off by default and always off in evaluation.
struct DropoutOptions {
  float probability = 0;
  uint64_t seed = 0;
  uint64_t step = 0;  // of all passes of the run
};

enum class DropoutPlace { kEmbedding, kAttention, kProjection, kMlp };

// Each place of each block (0: the embedding) has a stream of its own in every pass.
inline Dropout PlaceDropout(const DropoutOptions& options, int block, DropoutPlace place) {
  return {
      options.probability, options.seed,
      (options.step << 20) | (static_cast<uint64_t>(block) << 2) | static_cast<uint64_t>(place)};
}

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_DROPOUT_STREAMS_H_
