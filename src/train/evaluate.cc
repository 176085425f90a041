#include "train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "base/error.h"

namespace denseformer {
namespace {

// Room for a batch and what the forward pass says about it.
struct EvalBuffers {
  explicit EvalBuffers(int64_t rows) : tokens(rows), targets(rows), losses(rows), correct(rows) {}

  std::vector<int32_t> tokens, targets;
  std::vector<float> losses;
  std::vector<uint8_t> correct;
};

// Adds the batch in `buffers` to the sums; `result.loss` holds the sum of the losses meanwhile.
void AddBatch(const Model& model, int64_t sequences, int64_t length, EvalBuffers& buffers,
              Activations& activations, EvalResult& result) {
  const size_t rows = static_cast<size_t>(sequences * length);
  const Batch batch = {
      {buffers.tokens.data(), rows}, {buffers.targets.data(), rows}, sequences, length};
  CheckBatch(model, batch);
  ForwardLoss(model, batch, activations, {buffers.losses.data(), rows},
              {buffers.correct.data(), rows});
  for (size_t n = 0; n < rows; ++n) {
    if (buffers.targets[n] == EvalWindows::kNoTarget) continue;
    result.loss += buffers.losses[n];
    result.correct += buffers.correct[n];
    ++result.tokens;
  }
}

void Finish(EvalResult& result) {
  if (result.tokens > 0) result.loss /= static_cast<double>(result.tokens);
}

void Report(const std::function<bool(double)>& progress, double share) {
  if (progress && !progress(share)) {
    Throw(ErrorCode::kInterrupted, "evaluation: stopped by a signal");
  }
}

// Bytes of text behind tokens [1, 1 + count) of the file.
std::optional<double> TextBytes(const TokenFile& file, int64_t count, const Tokenizer* tokenizer) {
  if (tokenizer != nullptr) {
    std::vector<int> lengths(static_cast<size_t>(tokenizer->vocab_size()));
    for (size_t id = 0; id < lengths.size(); ++id) {
      lengths[id] = tokenizer->TextLength(static_cast<int32_t>(id));
    }
    int64_t bytes = 0;
    for (int64_t i = 1; i <= count; ++i) {
      if (file[i] < lengths.size()) bytes += lengths[file[i]];
    }
    return static_cast<double>(bytes);
  }
  if (!file.meta()) return std::nullopt;
  const std::string name = file.path().substr(file.path().rfind('/') + 1);
  const auto found = file.meta()->files.find(name);
  if (found == file.meta()->files.end() || found->second.tokens == 0) return std::nullopt;
  return static_cast<double>(found->second.bytes) * static_cast<double>(count) /
         static_cast<double>(found->second.tokens);
}

}  // namespace

double EvalResult::perplexity() const { return std::exp(loss); }

std::optional<double> EvalResult::bits_per_byte() const {
  if (!bytes || *bytes <= 0) return std::nullopt;
  return loss * static_cast<double>(tokens) / std::numbers::ln2 / *bytes;
}

EvalResult EvaluateStream(const Model& model, const TokenFile& file, Activations& activations,
                          const EvalOptions& options, const Tokenizer* tokenizer) {
  const int64_t length = options.seq_len > 0 ? options.seq_len : model.config().seq_len;
  if (length > model.config().seq_len) {
    Throw(ErrorCode::kInvalid, "evaluation: sequences of {} tokens, but the model's are at most {}",
          length, model.config().seq_len);
  }
  const EvalWindows windows(file, length);
  const int64_t wanted =
      options.max_tokens > 0 ? std::min(options.max_tokens, windows.targets()) : windows.targets();
  const int64_t at_once = std::max<int64_t>(1, activations.max_rows() / length);
  EvalBuffers buffers(at_once * length);
  EvalResult result;
  for (int64_t first = 0; result.tokens < wanted; first += at_once) {
    const int64_t count = std::min(at_once, windows.count() - first);
    windows.Fill(first, count, buffers.tokens.data(), buffers.targets.data());
    // Tokens beyond max_tokens are read but not predicted.
    const int64_t left = wanted - result.tokens;
    if (left < count * length) {
      std::fill(buffers.targets.begin() + left, buffers.targets.begin() + count * length,
                EvalWindows::kNoTarget);
    }
    AddBatch(model, count, length, buffers, activations, result);
    Report(options.progress, static_cast<double>(result.tokens) / static_cast<double>(wanted));
  }
  Finish(result);
  result.bytes = TextBytes(file, wanted, tokenizer);
  return result;
}

EvalResult EvaluateSample(const Model& model, const TrainBatches& sample, int batches,
                          Activations& activations, const std::function<bool(double)>& progress) {
  const int64_t length = sample.options().sequence_length;
  const int64_t at_once = std::max<int64_t>(1, activations.max_rows() / length);
  EvalBuffers buffers(at_once * length);
  EvalResult result;
  for (int step = 0; step < batches; ++step) {
    const int64_t size = sample.options().batch_size;
    for (int64_t first = 0; first < size; first += at_once) {
      const int64_t count = std::min(at_once, size - first);
      sample.Fill(step, {first, count}, buffers.tokens.data(), buffers.targets.data());
      AddBatch(model, count, length, buffers, activations, result);
      Report(progress,
             (step + static_cast<double>(first + count) / static_cast<double>(size)) / batches);
    }
  }
  Finish(result);
  return result;
}

int64_t PruneDwa(const Model& model, double percent) {
  if (percent > 0 && model.mixer().kind() != MixerKind::kStatic) {
    Throw(ErrorCode::kUnsupported,
          "prune: the weights of mixer {} depend on the token; only static ones can be removed",
          model.config().mixer);
  }
  std::vector<float*> weights;
  for (const Tensor& alphas : model.tensors().alphas) {
    for (int64_t i = 0; !alphas.empty() && i < alphas.count(); ++i) {
      weights.push_back(alphas.f32() + i);
    }
  }
  const auto count =
      static_cast<int64_t>(std::floor(static_cast<double>(weights.size()) * percent / 100));
  std::stable_sort(weights.begin(), weights.end(),
                   [](const float* a, const float* b) { return std::abs(*a) < std::abs(*b); });
  for (int64_t i = 0; i < count; ++i) *weights[i] = 0;
  return count;
}

}  // namespace denseformer
