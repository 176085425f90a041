#include "base/printable.h"

#include <fmt/format.h>

namespace denseformer {

std::string Printable(std::string_view text) {
  std::string printable;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7F) {
      printable += c;
    } else if (c == '\n') {
      printable += "\\n";
    } else if (c == '\t') {
      printable += "\\t";
    } else if (c == '\r') {
      printable += "\\r";
    } else {
      printable += fmt::format("\\x{:02x}", byte);
    }
  }
  return printable;
}

}  // namespace denseformer
