#include "base/toml.h"

#include "base/error.h"
#include "base/printable.h"

namespace denseformer {
namespace {

struct AssertionFailed {};

}  // namespace

void TomlAssertionFailed() { throw AssertionFailed(); }

toml::table ParseTomlTable(std::string_view text, std::string_view name) {
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    // What stands in the file is part of the description.
    Throw(ErrorCode::kInvalid, "{}:{}: {}", name, error.source().begin.line,
          Printable(error.description()));
  } catch (const AssertionFailed&) {
    Throw(ErrorCode::kInvalid,
          "{}: not TOML; look for a key or the name of a [table] that begins with a character that "
          "needs quotes",
          name);
  }
}

}  // namespace denseformer
