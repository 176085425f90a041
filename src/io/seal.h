// Text files that carry a hash of themselves, so that a changed byte can be told without a
// manifest.
#ifndef DENSEFORMER_IO_SEAL_H_
#define DENSEFORMER_IO_SEAL_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace denseformer {

// `text` and a last line "# xxh3 HASH": a comment in TOML.
std::string SealLines(std::string_view text);

// The JSON text of an object with a last key "xxh3": the hash of the text without it.
std::string SealJson(nlohmann::ordered_json json);

// Throw kCorrupt where `text` is not exactly what SealLines or SealJson gave; `path` is for the
// message.
void CheckSealedLines(std::string_view text, const std::string& path);
void CheckSealedJson(const std::string& text, const std::string& path);

}  // namespace denseformer

#endif  // DENSEFORMER_IO_SEAL_H_
