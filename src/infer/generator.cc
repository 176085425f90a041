#include "denseformer/generator.h"

#include <map>

#include "base/error.h"
#include "denseformer/engine.h"
#include "infer/text_stream.h"

namespace denseformer {
namespace {

void CheckRange(const char* name, double value, double low, double high) {
  if (!(value >= low && value <= high)) {
    Throw(ErrorCode::kUsage, "{}: got {}, expected {} to {}", name, value, low, high);
  }
}

// One text in the making.
struct Sample {
  explicit Sample(const GenerateOptions& options) : stream(options.stop) {}

  TextStream stream;
  Generation result;
};

}  // namespace

void SamplingOptions::Validate() const {
  CheckRange("temperature", temperature, 0, 100);
  CheckRange("top_k", top_k, 0, 1 << 24);
  if (!(top_p > 0 && top_p <= 1)) {
    Throw(ErrorCode::kUsage, "top_p: got {}, expected more than 0 and at most 1", top_p);
  }
  CheckRange("min_p", min_p, 0, 1);
  CheckRange("repetition_penalty", repetition_penalty, 0.01, 100);
}

void GenerateOptions::Validate() const {
  sampling.Validate();
  CheckRange("max_tokens", max_tokens, 0, 1 << 30);
  CheckRange("samples", samples, 1, 1024);
  CheckRange("logprobs", logprobs, -1, 1 << 24);
  for (const std::string& text : stop) {
    if (text.empty())
      Throw(ErrorCode::kUsage, "stop: got an empty string, expected at least one character");
  }
}

const char* FinishReasonName(FinishReason reason) {
  static constexpr const char* kNames[] = {"length",  "stop",      "end_of_text",
                                           "context", "cancelled", "failed"};
  return kNames[static_cast<int>(reason)];
}

struct Generator::Impl {
  explicit Impl(LanguageModel language_model)
      : language(std::move(language_model)),
        engine(DecodeEngine::Create(language, {.kept_prefixes = 1})) {}

  LanguageModel language;
  DecodeEngine engine;

  // Takes the next token of a sample; ends the sequence in the engine where the text ends first.
  void Advance(int number, Sample& sample, EngineEvent& event, const GenerateOptions& options,
               const TextCallback& callback) {
    if (event.finish == FinishReason::kFailed) Throw(ErrorCode::kNonFinite, "{}", event.error);
    const int32_t token = event.token->chosen.id;
    sample.result.tokens.push_back(token);
    if (options.logprobs >= 0) sample.result.logprobs.push_back(std::move(*event.token));
    if (event.finish == FinishReason::kEndOfText) {
      End(number, sample, FinishReason::kEndOfText, callback);
      return;
    }
    const bool wanted =
        Emit(number, sample, sample.stream.Add(language.tokenizer().TokenBytes(token)), callback);
    if (sample.stream.stopped()) {
      End(number, sample, FinishReason::kStop, callback);
    } else if (!wanted) {
      End(number, sample, FinishReason::kCancelled, callback);
    } else if (event.finish) {
      End(number, sample, *event.finish, callback);
    } else {
      return;
    }
    engine.Cancel(event.id);
  }

  static bool Emit(int number, Sample& sample, const std::string& piece,
                   const TextCallback& callback) {
    sample.result.text += piece;
    return piece.empty() || !callback || callback(number, piece);
  }

  static void End(int number, Sample& sample, FinishReason reason, const TextCallback& callback) {
    if (reason != FinishReason::kCancelled) Emit(number, sample, sample.stream.Finish(), callback);
    sample.result.finish = reason;
  }

  // Ends what an error or an exception of the callback left behind.
  void CancelAll(const std::map<SequenceId, int>& numbers) {
    for (const auto& [id, number] : numbers) engine.Cancel(id);
  }
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
  return GenerateSamples(impl_->language.tokenizer().Encode(prompt), options, callback);
}

std::vector<Generation> Generator::GenerateSamples(std::span<const int32_t> prompt,
                                                   const GenerateOptions& options,
                                                   const TextCallback& callback) {
  options.Validate();
  SequenceRequest request{.prompt = {prompt.begin(), prompt.end()},
                          .sampling = options.sampling,
                          .max_tokens = options.max_tokens,
                          .stop_at_end_of_text = options.stop_at_end_of_text,
                          .logprobs = options.logprobs,
                          .context = options.context};
  std::vector<Sample> samples;
  std::map<SequenceId, int> numbers;
  try {
    for (int s = 0; s < options.samples; ++s) {
      Sample& sample = samples.emplace_back(options);
      sample.result.prompt_tokens = static_cast<int>(prompt.size());
      request.sample = static_cast<uint64_t>(s);
      numbers[impl_->engine.Add(request)] = s;
    }
    if (options.max_tokens == 0) impl_->CancelAll(numbers);
    while (!impl_->engine.idle()) {
      for (EngineEvent& event : impl_->engine.Step()) {
        const int number = numbers.at(event.id);
        impl_->Advance(number, samples[static_cast<size_t>(number)], event, options, callback);
      }
    }
  } catch (...) {
    impl_->CancelAll(numbers);
    throw;
  }
  std::vector<Generation> results;
  for (Sample& sample : samples) results.push_back(std::move(sample.result));
  return results;
}

}  // namespace denseformer
