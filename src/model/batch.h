// A batch of token sequences, checked once before a pass, and the mean of its losses.
#ifndef DENSEFORMER_MODEL_BATCH_H_
#define DENSEFORMER_MODEL_BATCH_H_

#include <cstdint>
#include <span>

#include "model/model.h"

namespace denseformer {

// `sequences` rows of `length` tokens. targets[n] is the token that follows tokens[n], or
// kIgnoreTarget; empty where no loss is wanted.
struct Batch {
  std::span<const int32_t> tokens;
  std::span<const int32_t> targets;
  int64_t sequences = 0;
  int64_t length = 0;
  // Where several processes share a pass: the number of the first sequence in the pass, and the
  // targets of the whole pass, over which the mean loss is taken (0: those of this batch).
  int64_t first_sequence = 0;
  int64_t pass_targets = 0;
};

// Throws Error (kInvalid) where a token or a target is outside the vocabulary, or a sequence is
// longer than the model's seq_len; the message names the position.
void CheckBatch(const Model& model, const Batch& batch);

// Targets that are not ignored.
int64_t CountTargets(std::span<const int32_t> targets);

// Sum of the losses, in order and in double precision, over the number of targets; 0 for no
// targets.
double MeanLoss(std::span<const float> losses, int64_t targets);

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_BATCH_H_
