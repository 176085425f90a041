// config.json: the fields of ModelConfig, listed once in model/config_fields.h.
#include <nlohmann/json.hpp>
#include <type_traits>

#include "base/error.h"
#include "base/text.h"
#include "io/run_directory.h"
#include "io/strict_json.h"
#include "model/config_fields.h"

namespace denseformer {
namespace {

constexpr const char* kModelTypeKey = "model_type";
constexpr const char* kModelType = "denseformer";

template <class T>
bool Fits(const nlohmann::json& value) {
  if constexpr (std::is_same_v<T, bool>) return value.is_boolean();
  if constexpr (std::is_same_v<T, std::string>) return value.is_string();
  if constexpr (std::is_same_v<T, int>) {
    return value.is_number_integer() && value >= INT32_MIN && value <= INT32_MAX;
  }
}

}  // namespace

std::string ConfigToJson(const ModelConfig& config) {
  nlohmann::ordered_json json;
  json[kModelTypeKey] = kModelType;
  VisitFields(config,
              [&](const char* name, const auto& field, const char*) { json[name] = field; });
  return json.dump(2) + "\n";
}

ModelConfig ConfigFromJson(const std::string& text, const std::string& where) {
  const nlohmann::json json = ParseJson(text, where);
  if (!json.is_object() || json.value(kModelTypeKey, nlohmann::json()) != kModelType) {
    Throw(ErrorCode::kInvalid,
          "{}: \"model_type\" is not \"{}\"; 'denseformer import' reads other models", where,
          kModelType);
  }
  ModelConfig config;
  std::vector<std::string> known = {kModelTypeKey};
  VisitFields(config, [&](const char* name, auto& field, const char*) {
    using Field = std::decay_t<decltype(field)>;
    known.emplace_back(name);
    const auto found = json.find(name);
    if (found == json.end() && MayBeMissing(name)) return;
    if (found == json.end()) Throw(ErrorCode::kInvalid, "{}: key '{}' is missing", where, name);
    if (!Fits<Field>(*found)) {
      Throw(ErrorCode::kInvalid, "{}: '{}' is {}, expected {}", where, name, found->dump(),
            std::is_same_v<Field, int>    ? "a whole number"
            : std::is_same_v<Field, bool> ? "true or false"
                                          : "a string");
    }
    field = found->get<Field>();
  });
  for (const auto& [key, value] : json.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      Throw(ErrorCode::kInvalid, "{}: unknown key '{}'{}", where, key, DidYouMean(key, known));
    }
  }
  try {
    config.Validate();
  } catch (const Error& error) {
    Throw(ErrorCode::kInvalid, "{}: {}", where, error.what());
  }
  return config;
}

ModelConfig ReadConfig(const std::string& run) {
  const std::string path = run + "/config.json";
  return ConfigFromJson(ReadFile(path, 1 << 26), path);
}

}  // namespace denseformer
