#include "cli/data_prepare.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/signal.h"
#include "base/text.h"
#include "cli/checks.h"
#include "cli/output.h"
#include "data/prepare.h"

namespace denseformer {
namespace {

struct Options {
  std::string tokenizer;
  PrepareOptions prepare;
};

void Prepare(const Options& options, const CommonOptions& common) {
  CatchInterrupts();
  const Tokenizer tokenizer = Tokenizer::Load(options.tokenizer);
  const auto begin = std::chrono::steady_clock::now();
  const DataMeta meta = PrepareData(tokenizer, options.prepare);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  int64_t bytes = 0;
  for (const auto& [name, file] : meta.files) bytes += file.bytes;
  const double rate = static_cast<double>(bytes) / 1e6 / seconds.count();
  if (common.json) {
    nlohmann::ordered_json json = {{"out", options.prepare.out}};
    json.update(nlohmann::ordered_json::parse(MetaToJson(meta)));
    json["seconds"] = seconds.count();
    json["megabytes_per_second"] = rate;
    PrintJson(json);
    return;
  }
  for (const auto& [name, file] : meta.files) {
    Print("{}/{}: {} documents, {} bytes of text, {} tokens ({})\n", options.prepare.out, name,
          WithCommas(file.documents), WithCommas(file.bytes), WithCommas(file.tokens),
          TokenTypeName(meta.token_type));
  }
  Print("{:.1f} MB in {:.2f} s: {:.1f} MB/s\n", static_cast<double>(bytes) / 1e6, seconds.count(),
        rate);
}

}  // namespace

void AddDataPrepare(CLI::App& parent, CommonOptions& common) {
  CLI::App& app = *parent.add_subcommand("prepare", "Turn text into train.bin and val.bin");
  auto options = std::make_shared<Options>();
  PrepareOptions& prepare = options->prepare;
  app.add_option("INPUT", prepare.inputs,
                 "Text: .txt, .jsonl (each also .zst or .gz), or directories of them")
      ->required();
  app.add_option("--tokenizer", options->tokenizer,
                 "tokenizer.json, vocab.bpe, a directory with one, or 'bytes'")
      ->required();
  AddOutput(app, prepare.out, "Directory for train.bin, val.bin, tokenizer.json, meta.json")
      ->required();
  app.add_option("--val", prepare.val_inputs, "Text for val.bin, instead of a share of the input");
  app.add_option("--val-share", prepare.val_share,
                 "Share of the documents that goes to val.bin; 0: no val.bin")
      ->capture_default_str();
  app.add_option("--seed", prepare.seed, "Chooses the documents that go to val.bin")
      ->check(WholeNumber(0))
      ->capture_default_str();
  app.add_option("--field", prepare.corpus.field, "Field of .jsonl files that holds the text")
      ->capture_default_str();
  app.footer(
      "A line <|endoftext|> in a text file separates documents; each .jsonl line is one.\n"
      "Examples:\n"
      "  denseformer data prepare --tokenizer tokenizer.json --output data novels/\n"
      "  denseformer data prepare --tokenizer gpt2/vocab.bpe --output data \\\n"
      "      web.jsonl.zst --val held-out.txt");
  SetWork(app, common, options, [&common](const Options& o) { Prepare(o, common); });
}

}  // namespace denseformer
