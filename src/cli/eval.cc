// denseformer eval: loss, perplexity, accuracy and bits per byte of a run over a token stream.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/progress.h"
#include "base/signal.h"
#include "base/text.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/output.h"
#include "io/run_directory.h"
#include "tensor/precision.h"
#include "train/evaluate.h"
#include "train/train_data.h"
#include "train/trainer.h"

namespace denseformer {
namespace {

struct EvalCall {
  std::string run, data, checkpoint, precision = "auto";
  int64_t seq_len = 0, max_tokens = 0, batch_size = 0;
  double prune = 0;
};

// The token file to read: --data, or the validation file of the run.
std::string StreamOf(const EvalCall& call) {
  const std::string run = FindRun(call.run);
  std::string data = call.data;
  if (data.empty()) data = FindStoredData(run, "eval");
  if (data.empty()) {
    Throw(ErrorCode::kUsage,
          "eval: {} does not say what it was trained on (data.path in {}); give --data", run,
          kOptionsFile);
  }
  return std::filesystem::is_directory(data) ? data + "/" + kValidationFile : data;
}

// The tokenizer of the stream, so that bytes can be counted; the run's own where that has none.
std::optional<Tokenizer> TokenizerOf(const EvalCall& call, const std::string& stream) {
  const std::string directory = std::filesystem::path(stream).parent_path().string();
  std::optional<Tokenizer> tokenizer = FindTokenizer(directory.empty() ? "." : directory);
  return tokenizer ? tokenizer : FindTokenizer(FindRun(call.run));
}

void RunEval(const EvalCall& call, const CommonOptions& common) {
  const Model model = LoadFrozen(call.run, ParsePrecision(call.precision), call.checkpoint);
  const std::string stream = StreamOf(call);
  const TokenFile file(stream);
  file.CheckVocabulary(model.config().vocab_size);
  const int64_t pruned = PruneDwa(model, call.prune);

  // Some 8,192 tokens at once keep the matrix units busy.
  const int64_t length = call.seq_len > 0 ? std::min<int64_t>(call.seq_len, model.config().seq_len)
                                          : model.config().seq_len;
  const int64_t sequences =
      call.batch_size > 0 ? call.batch_size : std::max<int64_t>(1, 8192 / length);
  Activations activations(model, sequences, length, ModelUse::kInference);
  CatchInterrupts();
  EvalOptions options;
  options.seq_len = call.seq_len;
  options.max_tokens = call.max_tokens;
  Progress progress("eval", "%", 100);
  options.progress = [&progress](double share) {
    progress.Update(100 * share);
    return !Interrupted();
  };
  const std::optional<Tokenizer> tokenizer = TokenizerOf(call, stream);
  const EvalResult result =
      EvaluateStream(model, file, activations, options, tokenizer ? &*tokenizer : nullptr);
  progress.Finish();

  const std::optional<double> bits = result.bits_per_byte();
  using Json = nlohmann::ordered_json;
  if (common.json) {
    PrintJson({{"loss", result.loss},
               {"perplexity", result.perplexity()},
               {"accuracy", result.accuracy()},
               {"tokens", result.tokens},
               {"bits_per_byte", bits ? Json(*bits) : Json()},
               {"pruned", pruned},
               {"seq_len", length},
               {"precision", WeightFormatName(model.format())},
               {"data", stream}});
    return;
  }
  Print("loss           {:.5f}\n", result.loss);
  Print("perplexity     {:.4f}\n", result.perplexity());
  Print("accuracy       {:.4f}\n", result.accuracy());
  Print("bits per byte  {}\n", bits ? fmt::format("{:.4f}", *bits) : "unknown (no tokenizer)");
  Print("tokens         {}\n", WithCommas(result.tokens));
  if (call.prune > 0) Print("pruned         {} DWA weights\n", WithCommas(pruned));
}

}  // namespace

void AddEval(CLI::App& app, CommonOptions& common) {
  auto call = std::make_shared<EvalCall>();
  app.add_option("RUN", call->run, "Directory of the run")->required();
  app.add_option("--data", call->data,
                 "Token file, or a directory with val.bin; default: that of the run");
  app.add_option("--checkpoint", call->checkpoint, "last, best or a step; default: last");
  app.add_option("--seq-len", call->seq_len, "Length of the windows; default: the model's")
      ->check(WholeNumber(1));
  app.add_option("--max-tokens", call->max_tokens, "Predict no more tokens than this")
      ->check(WholeNumber(1));
  app.add_option("--prune", call->prune,
                 "Set the smallest Q percent of the DWA weights by magnitude to 0 first")
      ->check(Number(0, 100));
  app.add_option("--batch-size", call->batch_size, "Sequences at once; default: 8,192 tokens")
      ->check(WholeNumber(1, 1 << 20));
  app.add_option(
         "--precision", call->precision,
         "fp32, bf16, int8, or auto (as the weights are stored, or what the CPU is faster with)")
      ->check(OneOf(InferencePrecisionNames()));
  app.footer(
      "The whole stream in consecutive windows; perplexity is exp(loss).\n"
      "Examples:\n"
      "  denseformer eval runs/a\n"
      "  denseformer eval runs/a --json --data other/val.bin --checkpoint best\n"
      "  denseformer eval runs/a --prune 10 --max-tokens 100000");
  SetWork(app, common, call, [&common](const EvalCall& c) { RunEval(c, common); });
}

}  // namespace denseformer
