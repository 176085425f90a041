// denseformer generate: text from a trained model, streamed as it comes.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/signal.h"
#include "base/text.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/input.h"
#include "cli/line_editor.h"
#include "cli/output.h"
#include "denseformer/generator.h"
#include "tensor/precision.h"

namespace denseformer {
namespace {

struct Options {
  std::string run;
  std::string prompt, file;
  bool has_prompt = false;
  std::string precision = "auto";
  std::string context = "stop";
  bool echo = false;
  bool ignore_end = false;
  int logprobs = -1;
  std::optional<uint64_t> seed;  // none: another one each time
  GenerateOptions generate = Defaults();

  // Those of llama.cpp: small models wander off without them.
  static GenerateOptions Defaults() {
    GenerateOptions defaults;
    defaults.sampling.temperature = 0.8;
    defaults.sampling.top_k = 40;
    defaults.sampling.top_p = 0.95;
    defaults.sampling.min_p = 0.05;
    return defaults;
  }
};

// A seed that is easy to type again.
uint64_t RandomSeed() { return std::random_device{}() % 1'000'000'000; }

// Without the line end that editors and echo put behind a text: the model is to continue the line.
std::string WithoutLastLineEnd(std::string text) {
  if (!text.empty() && text.back() == '\n') text.pop_back();
  if (!text.empty() && text.back() == '\r') text.pop_back();
  return text;
}

nlohmann::ordered_json TokenJson(const TokenProbability& token, const Tokenizer& tokenizer) {
  return {{"id", token.id},
          {"text", std::string(tokenizer.TokenBytes(token.id))},
          {"logprob", token.logprob}};
}

nlohmann::ordered_json ToJson(const Generation& generation, const Tokenizer& tokenizer) {
  nlohmann::ordered_json json = {{"text", generation.text},
                                 {"tokens", generation.tokens},
                                 {"finish_reason", FinishReasonName(generation.finish)}};
  for (const GeneratedToken& token : generation.logprobs) {
    nlohmann::ordered_json entry = TokenJson(token.chosen, tokenizer);
    entry["likeliest"] = nlohmann::ordered_json::array();
    for (const TokenProbability& likely : token.likeliest) {
      entry["likeliest"].push_back(TokenJson(likely, tokenizer));
    }
    json["logprobs"].push_back(entry);
  }
  return json;
}

// A line per token: its log-probability, id and text, and the likeliest tokens there.
void PrintLogprobs(const Generation& generation, const Tokenizer& tokenizer) {
  const auto quoted = [&](int32_t id) {
    return nlohmann::json(std::string(tokenizer.TokenBytes(id)))
        .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  for (const GeneratedToken& token : generation.logprobs) {
    std::string line = fmt::format("{:9.4f} {:7} {}", token.chosen.logprob, token.chosen.id,
                                   quoted(token.chosen.id));
    for (size_t i = 0; i < token.likeliest.size(); ++i) {
      line += fmt::format("{}{} {:.4f}", i == 0 ? "   likeliest: " : ", ",
                          quoted(token.likeliest[i].id), token.likeliest[i].logprob);
    }
    Print("{}\n", line);
  }
}

// "length", or "length, stop" where the samples ended differently.
std::string FinishReasons(const std::vector<Generation>& results) {
  std::vector<std::string> names;
  for (const Generation& result : results) {
    const std::string name = FinishReasonName(result.finish);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return Join(names, ", ");
}

// Generates all samples for one prompt and prints them; one sample streams as it is made. A signal
// ends the texts where they are.
void Run(Generator& generator, const Tokenizer& tokenizer, const std::string& prompt,
         const Options& options, const CommonOptions& common) {
  const bool stream = !common.json && options.generate.samples == 1;
  if (stream && options.echo) WriteStdout(prompt);
  const auto begin = std::chrono::steady_clock::now();
  const TextCallback callback = [&](int, std::string_view piece) {
    if (stream) {
      WriteStdout(piece);
      FlushStdout();
    }
    return !Interrupted();
  };
  const std::vector<Generation> results =
      generator.GenerateSamples(prompt, options.generate, callback);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  int64_t tokens = 0;
  for (const Generation& result : results) tokens += static_cast<int64_t>(result.tokens.size());
  const double rate = static_cast<double>(tokens) / seconds;
  if (common.json) {
    nlohmann::ordered_json json = {{"prompt", prompt},
                                   {"prompt_tokens", results.front().prompt_tokens},
                                   {"seed", options.generate.sampling.seed}};
    for (const Generation& result : results) json["samples"].push_back(ToJson(result, tokenizer));
    json["tokens_per_second"] = rate;
    PrintJson(json);
  } else if (stream) {
    WriteStdout("\n");
  } else {
    for (size_t s = 0; s < results.size(); ++s) {
      Print("--- sample {} ---\n{}{}\n", s + 1, options.echo ? prompt : "", results[s].text);
    }
  }
  if (!common.json && options.generate.logprobs >= 0) {
    for (const Generation& result : results) PrintLogprobs(result, tokenizer);
  }
  FlushStdout();
  LogInfo("{} tokens in {:.2f} s, {:.1f} tokens/s, ended by {}, seed {}", tokens, seconds, rate,
          FinishReasons(results), options.generate.sampling.seed);
  const bool full = std::any_of(results.begin(), results.end(), [](const Generation& result) {
    return result.finish == FinishReason::kContext;
  });
  if (full) {
    LogInfo("the text ends at the model's longest sequence; --context slide continues");
  }
}

void Interact(Generator& generator, const Tokenizer& tokenizer, Options options,
              const CommonOptions& common) {
  LogInfo(
      "type a prompt and press Enter; Ctrl-C ends a text, an empty line or Ctrl-D ends the "
      "session");
  LineEditor editor("denseformer", "> ");
  // Each prompt of a session has a seed of its own, so that asking again gives another text.
  for (;; ++options.generate.sampling.seed) {
    const std::optional<std::string> line = editor.Next();
    if (!line || line->empty()) return;
    const InterruptScope scope;
    try {
      Run(generator, tokenizer, *line, options, common);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kInvalid) throw;
      LogError("{}", error.what());  // a prompt that does not fit must not end the session
    }
  }
}

void Generate(const Options& given, const CommonOptions& common) {
  Options options = given;
  options.generate.stop_at_end_of_text = !options.ignore_end;
  options.generate.context =
      options.context == "slide" ? ContextPolicy::kSlide : ContextPolicy::kStop;
  options.generate.logprobs = options.logprobs;
  options.generate.sampling.seed = options.seed ? *options.seed : RandomSeed();
  options.generate.Validate();
  const LanguageModel model = LanguageModel::Load(options.run, ParsePrecision(options.precision));
  Generator generator(model);
  if (!options.has_prompt && options.file.empty() && isatty(STDIN_FILENO) == 1) {
    Interact(generator, model.tokenizer(), options, common);
    return;
  }
  if (!options.has_prompt) {
    options.prompt = WithoutLastLineEnd(
        options.file.empty() || options.file == "-" ? ReadStdin() : ReadFile(options.file));
  }
  CatchInterrupts();
  Run(generator, model.tokenizer(), options.prompt, options, common);
  ThrowIfInterrupted("generate");
}

void AddSampling(CLI::App& app, Options& options) {
  SamplingOptions& sampling = options.generate.sampling;
  const char* group = "Sampling";
  app.add_option("--temperature", sampling.temperature,
                 "Sampling temperature; 0: always the likeliest token")
      ->capture_default_str()
      ->group(group);
  app.add_option("--top-k", sampling.top_k, "Only the K likeliest tokens; 0: all")
      ->capture_default_str()
      ->group(group);
  app.add_option("--top-p", sampling.top_p,
                 "Only the likeliest tokens up to this total probability")
      ->capture_default_str()
      ->group(group);
  app.add_option("--min-p", sampling.min_p,
                 "Only tokens with at least this share of the largest probability")
      ->capture_default_str()
      ->group(group);
  app.add_option("--repetition-penalty", sampling.repetition_penalty,
                 "Above 1: tokens that occurred before are less likely")
      ->capture_default_str()
      ->group(group);
  app.add_option("--seed", options.seed,
                 "Same seed, same text; default: a different one each time, which is printed")
      ->check(WholeNumber(0))
      ->group(group);
}

}  // namespace

void AddGenerate(CLI::App& app, CommonOptions& common) {
  auto options = std::make_shared<Options>();
  GenerateOptions& generate = options->generate;
  app.add_option("RUN", options->run, "Run directory of a trained model")->required();
  CLI::Option* prompt = app.add_option_function<std::string>(
      "--prompt,-p",
      [o = options.get()](const std::string& text) {
        o->prompt = text;
        o->has_prompt = true;
      },
      "The text to continue");
  app.add_option("--prompt-file", options->file,
                 "Read the prompt from this file, without its last line end; -: stdin")
      ->excludes(prompt);
  app.add_option("--max-tokens,-n", generate.max_tokens, "Longest text in tokens")
      ->capture_default_str();
  app.add_option("--samples", generate.samples, "Texts to generate, side by side")
      ->capture_default_str();
  app.add_option("--stop", generate.stop,
                 "End the text before this string; may be given several times")
      ->take_all()
      ->allow_extra_args(false);
  app.add_option("--logprobs", options->logprobs,
                 "Report each token's log-probability, and this many of the likeliest")
      ->check(WholeNumber(0, 1 << 24));
  app.add_option(
         "--context", options->context,
         "At the model's longest sequence: stop, or slide the window (re-encode its newer half)")
      ->check(OneOf({"stop", "slide"}))
      ->capture_default_str();
  app.add_option("--precision", options->precision, "auto, fp32, bf16 or int8")
      ->check(OneOf(InferencePrecisionNames()))
      ->capture_default_str();
  app.add_flag("--echo", options->echo, "Print the prompt before the text");
  app.add_flag("--ignore-end", options->ignore_end, "Continue after the end-of-text token");
  AddSampling(app, *options);
  app.footer(
      "With no prompt it asks for prompts on a terminal, one per line, and reads stdin elsewhere. "
      "An\n"
      "empty prompt begins a new document. Ctrl-C ends the text.\n"
      "Examples:\n"
      "  denseformer generate runs/tiny --prompt 'In the beginning' --max-tokens 60\n"
      "  denseformer generate runs/tiny -p 'And' --samples 3 --temperature 0.8 --top-k 40 --json\n"
      "  echo 'Once upon' | denseformer generate runs/tiny --context slide -n 2000");
  SetWork(app, common, options, [&common](const Options& o) { Generate(o, common); });
}

}  // namespace denseformer
