// denseformer data info: what token files hold. `data prepare` is in data_prepare.cc.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/data_prepare.h"
#include "cli/output.h"
#include "data/token_file.h"

namespace denseformer {
namespace {

namespace fs = std::filesystem;

struct InfoOptions {
  std::vector<std::string> paths;
  std::string type;
  int64_t vocab = 0;
  bool verify = false;
};

// `path` itself, or the .bin files of a directory.
std::vector<std::string> TokenFilesOf(const std::string& path) {
  if (!fs::is_directory(path)) return {path};
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    if (entry.path().extension() == ".bin") files.push_back(entry.path().string());
  }
  if (files.empty()) {
    Throw(ErrorCode::kNotFound, "data info: {} holds no token files (*.bin)", path);
  }
  std::sort(files.begin(), files.end());
  return files;
}

void VerifyHash(const TokenFile& file, const TokenFileMeta& expected) {
  const std::string hash = HashFile(file.path());
  if (hash != expected.hash) {
    Throw(ErrorCode::kCorrupt, "{}: checksum {}, expected {} as in meta.json; prepare it again",
          file.path(), hash, expected.hash);
  }
}

nlohmann::ordered_json Describe(const std::string& path, const InfoOptions& options) {
  std::optional<TokenType> type;
  if (!options.type.empty()) type = ParseTokenType(options.type);
  const TokenFile file(path, type);
  if (options.vocab > 0) file.CheckVocabulary(options.vocab);
  nlohmann::ordered_json json = {{"path", path},
                                 {"format", file.has_llmc_header() ? "llm.c" : "headerless"},
                                 {"token_type", TokenTypeName(file.type())},
                                 {"tokens", file.size()}};
  const TokenFile::Scan scan = file.ScanTokens(file.meta() ? file.meta()->end_of_text : -1);
  json["largest_token"] = scan.largest;
  if (file.meta()) {
    const TokenFileMeta& meta = file.meta()->files.at(fs::path(path).filename().string());
    if (options.verify) VerifyHash(file, meta);
    json["vocab_size"] = file.meta()->vocab_size;
    json["documents"] = meta.documents;
    json["text_bytes"] = meta.bytes;
    json["end_of_text_tokens"] = scan.end_of_text_count;
    json["hash"] = meta.hash;
    json["tokenizer_hash"] = file.meta()->tokenizer_hash;
  } else if (options.verify) {
    Throw(ErrorCode::kNotFound, "{}: no meta.json beside it to verify against", path);
  }
  return json;
}

void PrintDescription(const nlohmann::ordered_json& json) {
  Print("{}\n", json["path"].get<std::string>());
  for (const auto& [key, value] : json.items()) {
    if (key == "path") continue;
    Print("  {:<20}{}\n", key,
          value.is_number() ? WithCommas(value.get<int64_t>()) : value.get<std::string>());
  }
}

void Info(const InfoOptions& options, const CommonOptions& common) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const std::string& path : options.paths) {
    for (const std::string& file : TokenFilesOf(path)) files.push_back(Describe(file, options));
  }
  if (common.json) {
    PrintJson({{"files", files}});
  } else {
    for (const auto& file : files) PrintDescription(file);
  }
}

void AddInfo(CLI::App& parent, CommonOptions& common) {
  CLI::App& app = *parent.add_subcommand("info", "Size, type and content of token files");
  auto options = std::make_shared<InfoOptions>();
  app.add_option("PATH", options->paths, "Token files, or directories that hold some (*.bin)")
      ->required();
  app.add_option("--type", options->type,
                 "Type of headerless files; default: detected from the tokens")
      ->check(OneOf({"uint16", "uint32"}));
  app.add_option("--vocab", options->vocab, "Fail where a token is not below this number")
      ->check(WholeNumber(1));
  app.add_flag("--verify", options->verify, "Compare the checksums with those of meta.json");
  app.footer(
      "Examples:\n"
      "  denseformer data info data/\n"
      "  denseformer data info --vocab 50257 --json train.bin");
  SetWork(app, common, options, [&common](const InfoOptions& o) { Info(o, common); });
}

}  // namespace

void AddData(CLI::App& app, CommonOptions& common) {
  app.require_subcommand(1);
  AddDataPrepare(app, common);
  AddInfo(app, common);
}

}  // namespace denseformer
