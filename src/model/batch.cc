#include "model/batch.h"

#include "base/error.h"
#include "kernels/cross_entropy.h"

namespace denseformer {

void CheckBatch(const Model& model, const Batch& batch) {
  const ModelConfig& config = model.config();
  if (batch.sequences < 1 || batch.length < 1 || batch.length > config.seq_len) {
    Throw(ErrorCode::kInvalid,
          "batch of {} sequences of {} tokens: expected at least one sequence of 1 to {} tokens "
          "(the model's seq_len)",
          batch.sequences, batch.length, config.seq_len);
  }
  const size_t rows = static_cast<size_t>(batch.sequences * batch.length);
  if (batch.tokens.size() != rows || (!batch.targets.empty() && batch.targets.size() != rows)) {
    Throw(ErrorCode::kInvalid, "batch: {} tokens and {} targets, expected {} x {} of each",
          batch.tokens.size(), batch.targets.size(), batch.sequences, batch.length);
  }
  for (size_t n = 0; n < rows; ++n) {
    const int32_t token = batch.tokens[n];
    if (token < 0 || token >= config.vocab_size) {
      Throw(ErrorCode::kInvalid,
            "token {} at position {} of sequence {}: expected 0 to {} (the model's vocabulary)",
            token, n % batch.length, n / batch.length, config.vocab_size - 1);
    }
  }
  for (size_t n = 0; n < batch.targets.size(); ++n) {
    const int32_t target = batch.targets[n];
    if (target != kIgnoreTarget && (target < 0 || target >= config.vocab_size)) {
      Throw(ErrorCode::kInvalid,
            "target {} at position {} of sequence {}: expected 0 to {}, or {} for none", target,
            n % batch.length, n / batch.length, config.vocab_size - 1, kIgnoreTarget);
    }
  }
}

int64_t CountTargets(std::span<const int32_t> targets) {
  int64_t count = 0;
  for (int32_t target : targets) count += target != kIgnoreTarget;
  return count;
}

double MeanLoss(std::span<const float> losses, int64_t targets) {
  double sum = 0;
  for (float loss : losses) sum += loss;
  return targets > 0 ? sum / static_cast<double>(targets) : 0;
}

}  // namespace denseformer
