#include "serve/utf8.h"

#include "data/unicode.h"

namespace denseformer {
namespace {

DecodedChar DecodeAt(std::string_view text, size_t at) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  return p[at] < 0x80 ? DecodedChar{p[at], 1} : DecodeUtf8(p + at, p + text.size());
}

}  // namespace

std::string ValidUtf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const DecodedChar decoded = DecodeAt(text, at);
    const auto length = static_cast<size_t>(decoded.length);
    if (decoded.code_point < 0) {
      valid += "\xEF\xBF\xBD";
    } else {
      valid.append(text, at, length);
    }
    at += length;
  }
  return valid;
}

int64_t CharacterCursor::MoveTo(size_t position) {
  while (at_ < text_.size()) {
    const size_t next = at_ + static_cast<size_t>(DecodeAt(text_, at_).length);
    if (next > position) break;
    at_ = next;
    ++index_;
  }
  return index_;
}

}  // namespace denseformer
