#include "serve/utf8.h"

#include "data/unicode.h"

namespace denseformer {

std::string ValidUtf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  const unsigned char* const end = p + text.size();
  while (p < end) {
    const DecodedChar decoded = *p < 0x80 ? DecodedChar{*p, 1} : DecodeUtf8(p, end);
    if (decoded.code_point < 0) {
      valid += "\xEF\xBF\xBD";
    } else {
      valid.append(reinterpret_cast<const char*>(p), static_cast<size_t>(decoded.length));
    }
    p += decoded.length;
  }
  return valid;
}

}  // namespace denseformer
