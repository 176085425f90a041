// Where dropout acts, and the stream of random numbers of each place.
#ifndef DENSEFORMER_MODEL_DROPOUT_STREAMS_H_
#define DENSEFORMER_MODEL_DROPOUT_STREAMS_H_

#include <cstdint>

#include "denseformer/config.h"
#include "kernels/dropout.h"

namespace denseformer {

// Dropout of a training pass; off by default and always off in evaluation.
struct DropoutOptions {
  float probability = 0;
  uint64_t seed = 0;
  uint64_t step = 0;  // of all passes of the run
  // Elements before the first one of this process, in [B, T, D] and in [B, H, T, T], where it has
  // only some of the sequences of the pass.
  uint64_t first_element = 0, first_score = 0;

  // For the sequences of a pass from `sequence` on: each has the same masks whichever process has
  // it.
  void StartAt(int64_t sequence, int64_t length, const ModelConfig& config) {
    const uint64_t rows = static_cast<uint64_t>(sequence * length);
    first_element = rows * static_cast<uint64_t>(config.n_embd);
    first_score = rows * static_cast<uint64_t>(config.n_head * length);
  }
};

enum class DropoutPlace { kEmbedding, kAttention, kProjection, kMlp };

// Each place of each block (0: the embedding) has a stream of its own in every pass.
inline Dropout PlaceDropout(const DropoutOptions& options, int block, DropoutPlace place) {
  return {options.probability, options.seed,
          (options.step << 20) | (static_cast<uint64_t>(block) << 2) | static_cast<uint64_t>(place),
          place == DropoutPlace::kAttention ? options.first_score : options.first_element};
}

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_DROPOUT_STREAMS_H_
