#include "io/seal.h"

#include "base/error.h"
#include "base/hash.h"

namespace denseformer {
namespace {

constexpr const char* kKey = "xxh3";
constexpr std::string_view kLine = "# xxh3 ";

[[noreturn]] void Altered(const std::string& path) {
  Throw(ErrorCode::kCorrupt, "{}: its content and the hash in it disagree: it was altered", path);
}

}  // namespace

std::string SealLines(std::string_view text) {
  return fmt::format("{}{}{}\n", text, kLine, HashBytes(text.data(), text.size()));
}

std::string SealJson(nlohmann::ordered_json json) {
  json.erase(kKey);
  const std::string text = json.dump(2);
  json[kKey] = HashBytes(text.data(), text.size());
  return json.dump(2) + "\n";
}

void CheckSealedLines(std::string_view text, const std::string& path) {
  const size_t seal = text.rfind(kLine);
  if (seal == std::string_view::npos || SealLines(text.substr(0, seal)) != text) Altered(path);
}

void CheckSealedJson(const std::string& text, const std::string& path) {
  const auto json = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || SealJson(json) != text) Altered(path);
}

}  // namespace denseformer
