#include "denseformer/generator.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "infer/language_model.h"
#include "infer/sampler.h"
#include "infer/text_stream.h"
#include "model/decode.h"

namespace denseformer {
namespace {

// A prompt is encoded this many tokens at a time: enough for products at full speed.
constexpr int64_t kPrefillRows = 256;

void CheckRange(const char* name, double value, double low, double high) {
  if (!(value >= low && value <= high)) {
    Throw(ErrorCode::kUsage, "{}: got {}, expected {} to {}", name, value, low, high);
  }
}

// One text in the making.
struct Sample {
  Sample(const GenerateOptions& options, int number)
      : sampler(options.sampling, static_cast<uint64_t>(number)), stream(options.stop) {}

  Sampler sampler;
  TextStream stream;
  std::vector<int32_t> context;  // prompt and generated tokens
  Generation result;
  bool done = false;
};

}  // namespace

void GenerateOptions::Validate() const {
  CheckRange("temperature", sampling.temperature, 0, 100);
  CheckRange("top_k", sampling.top_k, 0, 1 << 24);
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) {
    Throw(ErrorCode::kUsage, "top_p: got {}, expected more than 0 and at most 1", sampling.top_p);
  }
  CheckRange("min_p", sampling.min_p, 0, 1);
  CheckRange("repetition_penalty", sampling.repetition_penalty, 0.01, 100);
  CheckRange("max_tokens", max_tokens, 0, 1 << 30);
  CheckRange("samples", samples, 1, 1024);
  CheckRange("logprobs", logprobs, -1, 1 << 24);
  for (const std::string& text : stop) {
    if (text.empty())
      Throw(ErrorCode::kUsage, "stop: got an empty string, expected at least one character");
  }
}

const char* FinishReasonName(FinishReason reason) {
  static constexpr const char* kNames[] = {"length", "stop", "end_of_text", "context", "cancelled"};
  return kNames[static_cast<int>(reason)];
}

struct Generator::Impl {
  explicit Impl(LanguageModel language_model)
      : language(std::move(language_model)),
        model(language.impl().model),
        tokenizer(language.tokenizer()) {}

  LanguageModel language;
  const Model& model;
  const Tokenizer& tokenizer;
  std::optional<KvCache> cache;
  std::optional<Activations> activations;
  int64_t activation_rows = 0;
  std::vector<float> logits;

  // The ids that may be chosen: the embedding can have more rows than there are tokens.
  size_t choices() const {
    return static_cast<size_t>(std::min(model.config().vocab_size, tokenizer.vocab_size()));
  }

  std::vector<int32_t> CheckedPrompt(std::span<const int32_t> prompt,
                                     const GenerateOptions& options) const {
    std::vector<int32_t> tokens(prompt.begin(), prompt.end());
    if (tokens.empty()) {
      if (tokenizer.end_of_text() < 0) {
        Throw(ErrorCode::kInvalid,
              "prompt: empty, and the tokenizer has no end-of-text token to begin with; give at "
              "least one character");
      }
      tokens.push_back(tokenizer.end_of_text());
    }
    const int64_t most = model.config().seq_len;
    if (options.context == ContextPolicy::kStop && static_cast<int64_t>(tokens.size()) > most) {
      Throw(ErrorCode::kInvalid,
            "prompt: {} tokens, but the model's context has {}; shorten it, or slide the window "
            "(--context slide)",
            tokens.size(), most);
    }
    return tokens;
  }

  void Reserve(int slots, int64_t capacity) {
    if (!cache || cache->slots() < slots || cache->capacity() < capacity) {
      cache.reset();
      cache.emplace(model, slots, capacity);
    }
    const int64_t rows = std::max<int64_t>(slots, std::min(capacity, kPrefillRows));
    if (activation_rows < rows) {
      activations.reset();
      activations.emplace(DecodeActivations(model, rows));
      activation_rows = rows;
    }
    logits.resize(static_cast<size_t>(slots) * model.config().vocab_size);
    for (int slot = 0; slot < slots; ++slot) cache->SetLength(slot, 0);
  }

  float* LogitsOf(int slot) {
    return logits.data() + static_cast<int64_t>(slot) * model.config().vocab_size;
  }

  // Encodes tokens into an empty slot; the logits after the last one go to LogitsOf(slot).
  void Prefill(int slot, std::span<const int32_t> tokens) {
    cache->SetLength(slot, 0);
    const Tensor out(LogitsOf(slot), {1, model.config().vocab_size});
    for (size_t begin = 0; begin < tokens.size(); begin += kPrefillRows) {
      const DecodeSequence sequence{
          slot, tokens.subspan(begin, std::min<size_t>(kPrefillRows, tokens.size() - begin))};
      Decode(model, {&sequence, 1}, *cache, *activations, out);
    }
  }

  // The newest tokens that a window keeps when it slides.
  std::span<const int32_t> Window(std::span<const int32_t> tokens) const {
    const size_t most = static_cast<size_t>(model.config().seq_len);
    return tokens.size() <= most ? tokens : tokens.last(std::max<size_t>(1, most / 2));
  }

  // Takes the next token of a sample from its logits; sets done where the text ends with it.
  void Advance(int number, Sample& sample, const GenerateOptions& options,
               const TextCallback& callback) {
    const std::span<const float> values(LogitsOf(number), choices());
    const int32_t token = sample.sampler.Choose(values, sample.context,
                                                static_cast<uint64_t>(sample.result.tokens.size()));
    sample.result.tokens.push_back(token);
    sample.context.push_back(token);
    if (options.logprobs >= 0) {
      sample.result.logprobs.push_back(TokenLogprobs(values, token, options.logprobs));
    }
    if (options.stop_at_end_of_text && token == tokenizer.end_of_text()) {
      End(number, sample, FinishReason::kEndOfText, callback);
      return;
    }
    const bool wanted =
        Emit(number, sample, sample.stream.Add(tokenizer.TokenBytes(token)), callback);
    if (sample.stream.stopped()) {
      End(number, sample, FinishReason::kStop, callback);
    } else if (!wanted) {
      End(number, sample, FinishReason::kCancelled, callback);
    } else if (static_cast<int>(sample.result.tokens.size()) >= options.max_tokens) {
      End(number, sample, FinishReason::kLength, callback);
    } else if (options.context == ContextPolicy::kStop &&
               cache->length(number) >= model.config().seq_len) {
      End(number, sample, FinishReason::kContext, callback);
    }
  }

  static bool Emit(int number, Sample& sample, const std::string& piece,
                   const TextCallback& callback) {
    sample.result.text += piece;
    return piece.empty() || !callback || callback(number, piece);
  }

  static void End(int number, Sample& sample, FinishReason reason, const TextCallback& callback) {
    if (reason != FinishReason::kCancelled) Emit(number, sample, sample.stream.Finish(), callback);
    sample.result.finish = reason;
    sample.done = true;
  }

  // One decode pass for the newest token of every sample that goes on.
  void Step(std::vector<Sample>& samples) {
    std::vector<DecodeSequence> sequences;
    for (size_t s = 0; s < samples.size(); ++s) {
      if (samples[s].done) continue;
      const std::span<const int32_t> context(samples[s].context);
      const int slot = static_cast<int>(s);
      if (cache->length(slot) >= cache->capacity()) {
        Prefill(slot,
                context.last(std::max<size_t>(1, static_cast<size_t>(cache->capacity()) / 2)));
      } else {
        sequences.push_back({slot, context.last(1)});
      }
    }
    if (sequences.empty()) return;
    const int64_t vocab = model.config().vocab_size;
    packed.resize(sequences.size() * static_cast<size_t>(vocab));
    Decode(model, sequences, *cache, *activations,
           Tensor(packed.data(), {static_cast<int64_t>(sequences.size()), vocab}));
    for (size_t s = 0; s < sequences.size(); ++s) {
      std::copy_n(packed.data() + static_cast<int64_t>(s) * vocab, vocab,
                  LogitsOf(sequences[s].slot));
    }
  }
  std::vector<float> packed;
};

Generator::Generator(LanguageModel model) : impl_(std::make_unique<Impl>(std::move(model))) {}
Generator::~Generator() = default;
Generator::Generator(Generator&&) noexcept = default;

Generation Generator::Generate(std::string_view prompt, const GenerateOptions& options) {
  GenerateOptions one = options;
  one.samples = 1;
  return std::move(GenerateSamples(prompt, one).front());
}

std::vector<Generation> Generator::GenerateSamples(std::string_view prompt,
                                                   const GenerateOptions& options,
                                                   const TextCallback& callback) {
  return GenerateSamples(impl_->tokenizer.Encode(prompt), options, callback);
}

std::vector<Generation> Generator::GenerateSamples(std::span<const int32_t> prompt,
                                                   const GenerateOptions& options,
                                                   const TextCallback& callback) {
  options.Validate();
  const std::vector<int32_t> tokens = impl_->CheckedPrompt(prompt, options);
  const int64_t wanted = static_cast<int64_t>(tokens.size()) + options.max_tokens;
  const int64_t capacity = std::min<int64_t>(wanted, impl_->model.config().seq_len);

  std::vector<Sample> samples;
  for (int s = 0; s < options.samples; ++s) {
    Sample& sample = samples.emplace_back(options, s);
    sample.context = tokens;
    sample.result.prompt_tokens = static_cast<int>(prompt.size());
    if (options.max_tokens == 0) sample.done = true;
  }
  if (options.max_tokens > 0) {
    impl_->Reserve(options.samples, capacity);
    impl_->Prefill(0, impl_->Window(tokens));
    for (int s = 1; s < options.samples; ++s) {
      impl_->cache->CopySlot(0, s);
      std::copy_n(impl_->LogitsOf(0), impl_->model.config().vocab_size, impl_->LogitsOf(s));
    }
  }
  for (;;) {
    bool active = false;
    for (size_t s = 0; s < samples.size(); ++s) {
      if (!samples[s].done) impl_->Advance(static_cast<int>(s), samples[s], options, callback);
      active |= !samples[s].done;
    }
    if (!active) break;
    impl_->Step(samples);
  }
  std::vector<Generation> results;
  for (Sample& sample : samples) results.push_back(std::move(sample.result));
  return results;
}

}  // namespace denseformer
