// generator.h: text from a model.
//
//   auto model = denseformer::LanguageModel::Load("runs/tiny");
//   denseformer::Generator generator(model);
//   std::cout << generator.Generate("In the beginning").text << "\n";
//
// The same model, prompt, options and seed give the same text, whatever the number of samples
// generated beside it.
#ifndef DENSEFORMER_GENERATOR_H_
#define DENSEFORMER_GENERATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "denseformer/model.h"

namespace denseformer {

// How the next token is chosen from the logits; the steps apply in this order.
struct SamplingOptions {
  double repetition_penalty = 1;  // > 1 makes tokens that occurred before less likely
  double temperature = 1;         // 0: always the most probable token
  int top_k = 0;                  // only the k most probable tokens; 0: all
  double top_p = 1;  // only the most probable tokens that together have this probability
  double min_p = 0;  // only tokens with at least this share of the largest probability
  uint64_t seed = 0;

  // Throws Error (kUsage) that names the field, its value and what would be right.
  void Validate() const;
};

// What happens when prompt and text reach the model's longest sequence.
enum class ContextPolicy {
  kStop,   // the text ends (finish reason kContext); a longer prompt is an error
  kSlide,  // the older half of the window is dropped and the rest computed again; one pass each
           // time
};

struct GenerateOptions {
  SamplingOptions sampling;
  int max_tokens = 128;
  int samples = 1;
  std::vector<std::string> stop;    // the text ends before the first of these; none may be empty
  bool stop_at_end_of_text = true;  // the end-of-text token ends the text (and is not part of it)
  int logprobs = -1;  // >= 0: report each token's log-probability and this many of the likeliest
  ContextPolicy context = ContextPolicy::kStop;

  // Throws Error (kUsage) that names the field, its value and what would be right.
  void Validate() const;
};

enum class FinishReason {
  kLength,     // max_tokens were generated
  kStop,       // a stop string
  kEndOfText,  // the end-of-text token
  kContext,    // the model's longest sequence
  kCancelled,  // by the caller
  kFailed,     // an error of this sequence (engine.h); a Generator throws it instead
};
const char* FinishReasonName(FinishReason reason);

struct TokenProbability {
  int32_t id = 0;
  // Natural logarithm, of the model itself: before penalty, temperature and filters, and among all
  // rows of the embedding (a vocabulary that is padded has more of them than tokens), as eval does.
  float logprob = 0;
};

struct GeneratedToken {
  TokenProbability chosen;
  std::vector<TokenProbability> likeliest;  // most probable first
};

struct Generation {
  std::string text;             // without the prompt, and without the stop string that ended it
  std::vector<int32_t> tokens;  // all generated ids, the last one included
  std::vector<GeneratedToken> logprobs;  // one per token, where asked for
  FinishReason finish = FinishReason::kLength;
  int prompt_tokens = 0;
};

// Called with each new piece of text of sample number `sample`: whole UTF-8 characters, nothing
// that a stop string might still take back. Returning false ends that sample (kCancelled).
using TextCallback = std::function<bool(int sample, std::string_view piece)>;

// Generates with memory of its own; one call at a time. Several generators may share a model.
class Generator {
 public:
  explicit Generator(LanguageModel model);
  ~Generator();
  Generator(Generator&&) noexcept;

  // One text. Throws Error: kUsage for options, kInvalid for a prompt that does not fit.
  Generation Generate(std::string_view prompt, const GenerateOptions& options = {});

  // options.samples texts for the same prompt, advanced together.
  std::vector<Generation> GenerateSamples(std::string_view prompt, const GenerateOptions& options,
                                          const TextCallback& callback = {});
  std::vector<Generation> GenerateSamples(std::span<const int32_t> prompt,
                                          const GenerateOptions& options,
                                          const TextCallback& callback = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_GENERATOR_H_
