// Loss, accuracy and bits per byte over a token stream.
#ifndef DENSEFORMER_TRAIN_EVALUATE_H_
#define DENSEFORMER_TRAIN_EVALUATE_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "data/batches.h"
#include "denseformer/tokenizer.h"
#include "dist/communicator.h"
#include "model/forward.h"
#include "train/pipeline.h"

namespace denseformer {

struct EvalResult {
  int64_t tokens = 0;   // that were predicted
  int64_t correct = 0;  // where the most probable token was the right one
  double loss = 0;      // mean over the tokens, in nats
  // Bytes of text that the predicted tokens stand for; where known.
  std::optional<double> bytes;

  double perplexity() const;
  double accuracy() const {
    return tokens == 0 ? 0 : static_cast<double>(correct) / static_cast<double>(tokens);
  }
  std::optional<double> bits_per_byte() const;
};

struct EvalOptions {
  int64_t seq_len = 0;     // length of the windows; 0: the model's
  int64_t max_tokens = 0;  // predict no more than this many tokens; 0: all
  // Called with the share of the work done; returning false ends the evaluation with kInterrupted.
  // All ranks of a group call it the same number of times, and must get the same answer.
  std::function<bool(double)> progress;
  // Ranks that share the work, each with the same weights and the file; null: this process alone.
  // All get the result of the whole.
  Communicator* group = nullptr;
  // The passes of a stage of a pipeline, whose stages all call it; null: the whole model here.
  Pipeline* pipeline = nullptr;
};

// The whole stream in consecutive windows: each token but the first is predicted once, from those
// before it in its window. Batches of as many windows as the activations have room for. Bytes come
// from the tokenizer where given, else from the meta.json of the file, in proportion. Throws
// kInvalid where a token is outside the model's vocabulary or the windows are longer than the
// model's sequences.
EvalResult EvaluateStream(const Model& model, const TokenFile& file, Activations& activations,
                          const EvalOptions& options, const Tokenizer* tokenizer = nullptr);

// `batches` batches of random windows, the same ones in each call. Of the options it takes progress
// and group.
EvalResult EvaluateSample(const Model& model, const TrainBatches& sample, int batches,
                          Activations& activations, const EvalOptions& options);

// Sets the smallest `percent` % of the DWA weights by magnitude to 0 (rounded down to whole
// weights; of equal ones the first go first) and returns how many. The packed weights are not
// touched: no depth-weighted average uses them.
int64_t PruneDwa(const Model& model, double percent);

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_EVALUATE_H_
