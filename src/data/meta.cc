#include "data/meta.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace denseformer {
namespace {

constexpr const char* kFormat = "denseformer-tokens";
constexpr int kVersion = 1;

using Json = nlohmann::json;

[[noreturn]] void Wrong(const std::string& path, const std::string& key, const Json& value,
                        const std::string& expected) {
  Throw(ErrorCode::kCorrupt, "{}: '{}' is {}, expected {}; prepare the data again", path, key,
        value.dump(-1, ' ', false, Json::error_handler_t::replace), expected);
}

// The value of a key that must be there.
const Json& Value(const Json& json, const char* key, const std::string& path) {
  const auto found = json.find(key);
  if (found == json.end()) {
    Throw(ErrorCode::kCorrupt, "{}: '{}' is missing; prepare the data again", path, key);
  }
  return *found;
}

int64_t WholeNumber(const Json& json, const char* key, const std::string& path, int64_t low = 0,
                    int64_t high = INT64_MAX) {
  const Json& value = Value(json, key, path);
  const bool fits = value.is_number_unsigned()
                        ? value.get<uint64_t>() <= static_cast<uint64_t>(high)
                        : value.is_number_integer();
  if (!fits || value.get<int64_t>() < low) {
    Wrong(path, key, value, fmt::format("a whole number of at least {}", low));
  }
  return value.get<int64_t>();
}

std::string Text(const Json& json, const char* key, const std::string& path) {
  const Json& value = Value(json, key, path);
  if (!value.is_string()) Wrong(path, key, value, "a string");
  return value.get<std::string>();
}

const Json& Object(const Json& json, const char* key, const std::string& path) {
  const Json& value = Value(json, key, path);
  if (!value.is_object()) Wrong(path, key, value, "an object");
  return value;
}

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
  Json json;
  try {
    json = Json::parse(ReadFile(path));
  } catch (const Json::exception& error) {
    Throw(ErrorCode::kCorrupt, "{}: not JSON: {}", path, JsonProblem(error.what()));
  }
  if (!json.is_object() || json.value("format", Json()) != kFormat) return std::nullopt;
  if (const int64_t version = WholeNumber(json, "version", path); version != kVersion) {
    Throw(ErrorCode::kUnsupported, "{}: version {}, expected {}", path, version, kVersion);
  }
  DataMeta meta;
  try {
    meta.token_type = ParseTokenType(Text(json, "token_type", path));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCorrupt) throw;  // not a string
    Throw(ErrorCode::kCorrupt, "{}: {}; prepare the data again", path, error.what());
  }
  meta.vocab_size = WholeNumber(json, "vocab_size", path, 1);
  meta.end_of_text = static_cast<int32_t>(WholeNumber(json, "end_of_text", path, -1, INT32_MAX));
  const Json& tokenizer = Object(json, "tokenizer", path);
  meta.tokenizer_file = Text(tokenizer, "file", path);
  meta.tokenizer_hash = Text(tokenizer, "hash", path);
  for (const auto& [name, file] : Object(json, "files", path).items()) {
    if (!file.is_object()) Wrong(path, name, file, "an object");
    meta.files[name] = {WholeNumber(file, "documents", path), WholeNumber(file, "bytes", path),
                        WholeNumber(file, "tokens", path), Text(file, "hash", path)};
  }
  return meta;
}

}  // namespace denseformer
