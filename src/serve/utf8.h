// Text that is fit for JSON.
#ifndef DENSEFORMER_SERVE_UTF8_H_
#define DENSEFORMER_SERVE_UTF8_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace denseformer {

// `text` with U+FFFD for each byte that is not part of a character.
std::string ValidUtf8(std::string_view text);

// Goes through the characters of a text, as ValidUtf8 has them.
class CharacterCursor {
 public:
  // `text` must outlive it; `index` is the number of its first character.
  CharacterCursor(std::string_view text, int64_t index) : text_(text), index_(index) {}

  // Moves on to the character that has byte `position`, or to the end. Its number.
  int64_t MoveTo(size_t position);

 private:
  std::string_view text_;
  size_t at_ = 0;
  int64_t index_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_SERVE_UTF8_H_
