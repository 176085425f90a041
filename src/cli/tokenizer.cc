// denseformer tokenizer train | import | info. The filters are in tokenizer_filters.cc.
#include "denseformer/tokenizer.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/signal.h"
#include "base/text.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/tokenizer_filters.h"
#include "data/bpe_train.h"

namespace denseformer {
namespace {

struct TrainOptions {
  std::vector<std::string> inputs;
  int vocab = 0;
  bool bytes = false;
  std::string out;
  CorpusOptions corpus;
};

struct ImportOptions {
  std::string path, out;
};

nlohmann::ordered_json Describe(const Tokenizer& tokenizer) {
  const TokenizerData& data = tokenizer.data();
  size_t longest = 0;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.IsSpecial(id)) longest = std::max(longest, tokenizer.TokenBytes(id).size());
  }
  nlohmann::ordered_json special = nlohmann::ordered_json::object();
  for (const auto& [name, id] : data.special) special[name] = id;
  return {{"vocab_size", tokenizer.vocab_size()},
          {"merges", data.merges.size()},
          {"longest_token_bytes", longest},
          {"end_of_text", tokenizer.end_of_text()},
          {"special_tokens", special},
          {"hash", tokenizer.Hash()}};
}

void PrintDescription(nlohmann::ordered_json json, const CommonOptions& common) {
  if (common.json) {
    PrintJson(json);
    return;
  }
  for (const auto& [key, value] : json.items()) {
    Print("{:<22}{}\n", key,
          value.is_string()           ? value.get<std::string>()
          : value.is_number_integer() ? WithCommas(value.get<int64_t>())
                                      : value.dump());
  }
}

void SaveAndDescribe(const Tokenizer& tokenizer, const std::string& out,
                     const CommonOptions& common) {
  if (out == "-") {
    WriteStdout(tokenizer.ToJson());
    return;
  }
  tokenizer.Save(out);
  nlohmann::ordered_json json = {{"path", out}};
  json.update(Describe(tokenizer));
  PrintDescription(json, common);
}

void Train(const TrainOptions& options, const CommonOptions& common) {
  if (options.bytes) {
    if (options.vocab != 0 || !options.inputs.empty()) {
      Throw(ErrorCode::kUsage,
            "tokenizer train: --bytes learns nothing, so give neither --vocab nor "
            "files with it");
    }
    RequireWritable(options.out);
    SaveAndDescribe(Tokenizer::Bytes(), options.out, common);
    return;
  }
  if (options.vocab == 0 || options.inputs.empty()) {
    Throw(ErrorCode::kUsage,
          "tokenizer train: give --vocab N and the files to learn from, or --bytes");
  }
  CheckVocabularySize(options.vocab);
  RequireWritable(options.out);
  CatchInterrupts();
  const auto begin = std::chrono::steady_clock::now();
  CorpusReader corpus(FindCorpusFiles(options.inputs), options.corpus);
  const PieceCounts pieces = CountPieces(corpus);
  const Tokenizer tokenizer(LearnBpe(pieces, options.vocab));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  if (tokenizer.vocab_size() < options.vocab) {
    LogWarning("no pair of tokens occurs twice anymore: the vocabulary has {} tokens, not {}",
               tokenizer.vocab_size(), options.vocab);
  }
  LogInfo("learned from {} distinct pieces in {:.1f} s", WithCommas(pieces.size()),
          seconds.count());
  SaveAndDescribe(tokenizer, options.out, common);
}

void AddTrain(CLI::App& parent, CommonOptions& common) {
  CLI::App& app = *parent.add_subcommand("train", "Learn a tokenizer from text");
  auto options = std::make_shared<TrainOptions>();
  app.add_option("INPUT", options->inputs,
                 "Text: .txt, .jsonl (each also .zst or .gz), or directories of them");
  app.add_option("--vocab", options->vocab,
                 "Size of the vocabulary: 256 bytes, the learned tokens and the end of text")
      ->check(WholeNumber(1, 1 << 20));
  app.add_flag("--bytes", options->bytes, "The byte tokenizer instead: 257 tokens, no text needed");
  AddOutput(app, options->out, "The tokenizer.json to write")->required()->check(FileToWrite());
  app.add_option("--field", options->corpus.field, "Field of .jsonl files that holds the text")
      ->capture_default_str();
  app.footer(
      "Examples:\n"
      "  denseformer tokenizer train --vocab 2048 --output tokenizer.json novels/\n"
      "  denseformer tokenizer train --bytes --output tokenizer.json");
  SetWork(app, common, options, [&common](const TrainOptions& o) { Train(o, common); });
}

void AddImport(CLI::App& parent, CommonOptions& common) {
  CLI::App& app = *parent.add_subcommand("import", "Make a tokenizer.json from other files");
  auto options = std::make_shared<ImportOptions>();
  app.add_option(
         "PATH", options->path,
         "vocab.bpe, vocab.json (with merges.txt beside it), tokenizer.json, or a directory")
      ->required();
  AddOutput(app, options->out, "The tokenizer.json to write")->required()->check(FileToWrite());
  app.footer(
      "Example:\n"
      "  denseformer tokenizer import gpt2/vocab.bpe --output tokenizer.json");
  SetWork(app, common, options, [&common](const ImportOptions& o) {
    RequireWritable(o.out);
    SaveAndDescribe(Tokenizer::Load(o.path), o.out, common);
  });
}

void AddInfo(CLI::App& parent, CommonOptions& common) {
  CLI::App& app = *parent.add_subcommand("info", "Size and special tokens of a tokenizer");
  auto options = std::make_shared<ImportOptions>();
  app.add_option("PATH", options->path, "Tokenizer: a file or a directory")->required();
  app.footer(
      "Example:\n"
      "  denseformer tokenizer info tokenizer.json --json");
  SetWork(app, common, options, [&common](const ImportOptions& o) {
    PrintDescription(Describe(Tokenizer::Load(o.path)), common);
  });
}

}  // namespace

void AddTokenizer(CLI::App& app, CommonOptions& common) {
  app.require_subcommand(1);
  AddTrain(app, common);
  AddImport(app, common);
  AddTokenizerFilters(app, common);
  AddInfo(app, common);
}

}  // namespace denseformer
