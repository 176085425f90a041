// Parsing of TOML, with the errors of this program.
#ifndef DENSEFORMER_BASE_TOML_H_
#define DENSEFORMER_BASE_TOML_H_

namespace denseformer {

// Throws what ParseTomlTable catches.
[[noreturn]] void TomlAssertionFailed();

}  // namespace denseformer

// The parser of toml++ asserts what a malformed file can break ("[%]"): that would end the program,
// and be undefined where NDEBUG is set. It throws instead, with or without NDEBUG.
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(expr) ((expr) ? static_cast<void>(0) : ::denseformer::TomlAssertionFailed())
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

#include <string_view>

namespace denseformer {

// Throws kInvalid with the line where the syntax is wrong; `name` (of the file) begins the message.
toml::table ParseTomlTable(std::string_view text, std::string_view name);

}  // namespace denseformer

#endif  // DENSEFORMER_BASE_TOML_H_
