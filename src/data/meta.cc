#include "data/meta.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace denseformer {
namespace {

constexpr const char* kFormat = "denseformer-tokens";
constexpr int kVersion = 1;

}  // namespace

const char* TokenTypeName(TokenType type) {
  return type == TokenType::kUint16 ? "uint16" : "uint32";
}

TokenType ParseTokenType(const std::string& name) {
  if (name == "uint16") return TokenType::kUint16;
  if (name == "uint32") return TokenType::kUint32;
  Throw(ErrorCode::kInvalid, "token type: got '{}', expected uint16 or uint32", name);
}

std::string MetaToJson(const DataMeta& meta) {
  nlohmann::ordered_json json;
  json["format"] = kFormat;
  json["version"] = kVersion;
  json["token_type"] = TokenTypeName(meta.token_type);
  json["vocab_size"] = meta.vocab_size;
  json["end_of_text"] = meta.end_of_text;
  json["tokenizer"] = {{"file", meta.tokenizer_file}, {"hash", meta.tokenizer_hash}};
  for (const auto& [name, file] : meta.files) {
    json["files"][name] = {{"documents", file.documents},
                           {"bytes", file.bytes},
                           {"tokens", file.tokens},
                           {"hash", file.hash}};
  }
  return json.dump(2) + "\n";
}

std::optional<DataMeta> ReadMeta(const std::string& directory) {
  const std::string path = directory + "/" + kMetaFile;
  if (!FileExists(path)) return std::nullopt;
  DataMeta meta;
  try {
    const nlohmann::json json = nlohmann::json::parse(ReadFile(path));
    if (!json.is_object() || json.value("format", "") != kFormat) return std::nullopt;
    if (const int version = json.at("version"); version != kVersion) {
      Throw(ErrorCode::kUnsupported, "{}: version {}, expected {}", path, version, kVersion);
    }
    meta.token_type = ParseTokenType(json.at("token_type"));
    meta.vocab_size = json.at("vocab_size");
    meta.end_of_text = json.at("end_of_text");
    meta.tokenizer_file = json.at("tokenizer").at("file");
    meta.tokenizer_hash = json.at("tokenizer").at("hash");
    for (const auto& [name, file] : json.at("files").items()) {
      meta.files[name] = {file.at("documents"), file.at("bytes"), file.at("tokens"),
                          file.at("hash")};
    }
  } catch (const nlohmann::json::exception& error) {
    Throw(ErrorCode::kCorrupt, "{}: not the meta.json of `data prepare`: {}", path,
          JsonProblem(error.what()));
  }
  return meta;
}

}  // namespace denseformer
