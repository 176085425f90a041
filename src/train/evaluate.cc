#include "train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "base/error.h"
#include "dist/collectives.h"

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
              Activations& activations, Pipeline* pipeline, EvalResult& result) {
  const size_t rows = static_cast<size_t>(sequences * length);
  const Batch batch = {
      {buffers.tokens.data(), rows}, {buffers.targets.data(), rows}, sequences, length};
  CheckBatch(model, batch);
  const std::span<float> losses(buffers.losses.data(), rows);
  const std::span<uint8_t> correct(buffers.correct.data(), rows);
  if (pipeline != nullptr) {
    pipeline->ForwardLoss(batch, losses, correct);
  } else {
    ForwardLoss(model, batch, activations, losses, correct);
  }
  for (size_t n = 0; n < rows; ++n) {
    if (buffers.targets[n] == EvalWindows::kNoTarget) continue;
    result.loss += buffers.losses[n];
    result.correct += buffers.correct[n];
    ++result.tokens;
  }
}

// How ranks share windows: in rounds of `at_once` consecutive ones for each rank.
struct Rounds {
  Rounds(int64_t room, Communicator* group)
      : rank(group != nullptr ? group->rank() : 0), size(group != nullptr ? group->size() : 1) {
    at_once = std::max<int64_t>(1, room);
    if (size == 1) return;
    for (const int64_t theirs : Exchange(*group, at_once)) at_once = std::min(at_once, theirs);
  }

  int64_t step() const { return at_once * size; }
  // This rank's windows of the round that begins with window `first` of `count`.
  SampleRange Mine(int64_t first, int64_t count) const {
    const int64_t begin = std::min(count, first + rank * at_once);
    return {begin, std::min(at_once, count - begin)};
  }

  int rank, size;
  int64_t at_once;
};

// From sums of this rank to means of all.
void Finish(EvalResult& result, const EvalOptions& options) {
  struct Sums {
    int64_t tokens, correct;
    double loss;
  };
  Sums mine = {result.tokens, result.correct, result.loss};
  if (options.pipeline != nullptr) {
    // The last stage has the losses.
    Communicator& stages = options.pipeline->stages();
    Broadcast(stages, std::span(&mine, 1), stages.size() - 1);
    result.correct = mine.correct;
    result.loss = mine.loss;
  }
  Communicator* group = options.group;
  if (group != nullptr && group->size() > 1) {
    result = EvalResult();
    for (const Sums& sums : Exchange(*group, mine)) {
      result.tokens += sums.tokens;
      result.correct += sums.correct;
      result.loss += sums.loss;
    }
  }
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
    Throw(ErrorCode::kUsage, "evaluation: sequences of {} tokens, but the model's are at most {}",
          length, model.config().seq_len);
  }
  const EvalWindows windows(file, length);
  const int64_t wanted =
      options.max_tokens > 0 ? std::min(options.max_tokens, windows.targets()) : windows.targets();
  const Rounds rounds(activations.max_rows() / length, options.group);
  EvalBuffers buffers(rounds.at_once * length);
  EvalResult result;
  const int64_t needed = (wanted + length - 1) / length;  // windows
  for (int64_t first = 0; first < needed; first += rounds.step()) {
    const SampleRange mine = rounds.Mine(first, needed);
    if (mine.count > 0) {
      windows.Fill(mine.first, mine.count, buffers.tokens.data(), buffers.targets.data());
      // Tokens beyond max_tokens are read but not predicted.
      const int64_t left = wanted - mine.first * length;
      if (left < mine.count * length) {
        std::fill(buffers.targets.begin() + left, buffers.targets.begin() + mine.count * length,
                  EvalWindows::kNoTarget);
      }
      AddBatch(model, mine.count, length, buffers, activations, options.pipeline, result);
    }
    const int64_t done = std::min(wanted, (first + rounds.step()) * length);
    Report(options.progress, static_cast<double>(done) / static_cast<double>(wanted));
  }
  Finish(result, options);
  result.bytes = TextBytes(file, wanted, tokenizer);
  return result;
}

EvalResult EvaluateSample(const Model& model, const TrainBatches& sample, int batches,
                          Activations& activations, const EvalOptions& options) {
  const int64_t length = sample.options().sequence_length, size = sample.options().batch_size;
  const Rounds rounds(activations.max_rows() / length, options.group);
  EvalBuffers buffers(rounds.at_once * length);
  EvalResult result;
  for (int step = 0; step < batches; ++step) {
    for (int64_t first = 0; first < size; first += rounds.step()) {
      const SampleRange mine = rounds.Mine(first, size);
      if (mine.count > 0) {
        sample.Fill(step, mine, buffers.tokens.data(), buffers.targets.data());
        AddBatch(model, mine.count, length, buffers, activations, options.pipeline, result);
      }
      const int64_t done = std::min(size, first + rounds.step());
      Report(options.progress,
             (step + static_cast<double>(done) / static_cast<double>(size)) / batches);
    }
  }
  Finish(result, options);
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
