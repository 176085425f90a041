// engine.h: many sequences of one model at once, at the level of tokens.
//
//   denseformer::DecodeEngine engine = denseformer::DecodeEngine::Create(model);
//   denseformer::SequenceRequest request;
//   request.prompt = model.tokenizer().Encode("In the beginning");
//   const denseformer::SequenceId id = engine.Add(request);
//   while (!engine.idle()) {
//     for (const denseformer::EngineEvent& event : engine.Step()) ...   // Add and Cancel at will
//   }
//
// Sequences enter and leave between steps. A step runs one pass over a budget of rows: first one
// row for every sequence that generates, then chunks of prompts in order of arrival. Logits and
// tokens of a sequence have the same bits whatever runs beside it and however its prompt is cut.
//
// Text from one prompt: generator.h is the simpler interface.
#ifndef DENSEFORMER_ENGINE_H_
#define DENSEFORMER_ENGINE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "denseformer/generator.h"
#include "denseformer/model.h"

namespace denseformer {

struct EngineOptions {
  int max_rows = 256;      // tokens per step; more are faster for long prompts and take more memory
  int max_sequences = 64;  // that run at the same time, at most max_rows; more wait for their turn
  // Bytes for keys and values and for the buffers of a step, the weights not included. 0: enough
  // for max_sequences sequences of the model's full context, taken only as it is needed.
  int64_t memory_bytes = 0;
  // A prompt that begins like that of a running sequence, or of one of this many finished ones
  // whose keys and values are kept while memory lasts, computes only the rest.
  int kept_prefixes = 64;

  // Throws Error (kUsage) that names the field, its value and what would be right.
  void Validate() const;
};

struct SequenceRequest {
  std::vector<int32_t> prompt;  // empty: begins with the end-of-text token
  SamplingOptions sampling;
  uint64_t sample = 0;  // numbers the samples of one prompt: another one draws other random numbers
  int max_tokens = 128;
  bool stop_at_end_of_text = true;  // the end-of-text token is the last one
  int logprobs = -1;  // >= 0: each token's log-probability and this many of the likeliest
  // The same for tokens of the prompt, from position prompt_logprobs_begin on. The token at
  // position 0 has none: nothing comes before it.
  int prompt_logprobs = -1;
  int64_t prompt_logprobs_begin = 1;
  ContextPolicy context = ContextPolicy::kStop;

  // Throws Error (kUsage) that names the field, its value and what would be right.
  void Validate() const;
};

using SequenceId = uint64_t;

// What a step brought for one sequence.
struct EngineEvent {
  SequenceId id = 0;
  // Of prompt tokens, in order, over all steps one for each position asked for.
  std::vector<GeneratedToken> prompt_logprobs;
  // The new token; its log-probability and the likeliest ones only where asked for.
  std::optional<GeneratedToken> token;
  // The sequence is finished: no event follows.
  std::optional<FinishReason> finish;
  std::string error;  // with FinishReason::kFailed, one line
};

struct EngineStats {
  int running = 0;
  int waiting = 0;
  int64_t cache_bytes = 0;        // held by running sequences and kept prefixes
  int64_t cache_limit_bytes = 0;  // the most that keys and values may take
  uint64_t steps = 0;
  uint64_t prompt_tokens = 0;     // computed
  uint64_t reused_tokens = 0;     // of prompts, not computed thanks to a common prefix
  uint64_t generated_tokens = 0;  //
};

// Not thread-safe: one thread at a time calls it. Several engines may share a model.
class DecodeEngine {
 public:
  // Throws Error (kUsage) for options, also where memory_bytes does not hold the buffers of a step
  // and one page of keys and values. The model is shared, not copied.
  static DecodeEngine Create(LanguageModel model, const EngineOptions& options = {});
  ~DecodeEngine();
  DecodeEngine(DecodeEngine&&) noexcept;
  DecodeEngine& operator=(DecodeEngine&&) noexcept;

  // Queues a sequence. Throws Error, and leaves the other sequences as they are: kUsage for an
  // option, kInvalid for a token outside the vocabulary, a prompt longer than the context, or a
  // sequence whose keys and values could exceed the memory even if it ran alone.
  SequenceId Add(SequenceRequest request);

  // Forgets a sequence, waiting or running, at once; no event follows. False where it is finished
  // or unknown.
  bool Cancel(SequenceId id);

  // One pass; at most one event per sequence, in order of arrival. Without sequences it does
  // nothing. A failure that concerns one sequence is an event of that one.
  std::vector<EngineEvent> Step();

  bool idle() const;  // no sequence waits or runs
  EngineStats stats() const;
  const LanguageModel& model() const;

 private:
  struct Impl;
  explicit DecodeEngine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_ENGINE_H_
