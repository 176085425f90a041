// Classes of characters as GPT-2's splitting pattern sees them: \p{L}, \p{N}, \s (White_Space), and
// the rest. Read from UTF-8; a byte that does not belong to a valid sequence is a character of the
// class kOther by itself.
#ifndef DENSEFORMER_DATA_UNICODE_H_
#define DENSEFORMER_DATA_UNICODE_H_

#include <array>
#include <cstdint>

namespace denseformer {

enum CharClass : uint8_t { kLetter, kNumber, kSpace, kOther, kMultibyte };

// The class of a byte below 0x80; kMultibyte for the others.
extern const std::array<CharClass, 256> kByteClass;

struct ClassifiedChar {
  CharClass char_class;  // never kMultibyte
  int length;            // bytes
};

// The character that begins with the byte *p >= 0x80; p < end.
ClassifiedChar ClassifyMultibyte(const unsigned char* p, const unsigned char* end);

inline ClassifiedChar Classify(const unsigned char* p, const unsigned char* end) {
  const CharClass byte_class = kByteClass[*p];
  return byte_class != kMultibyte ? ClassifiedChar{byte_class, 1} : ClassifyMultibyte(p, end);
}

// Decodes one character: its length and code point, or length 1 and code point -1 for a byte that
// is not part of a valid sequence. p < end.
struct DecodedChar {
  int32_t code_point;
  int length;
};
DecodedChar DecodeUtf8(const unsigned char* p, const unsigned char* end);

// Writes the UTF-8 form of a code point to `out`; returns its length (1 to 4).
int EncodeUtf8(int32_t code_point, char* out);

}  // namespace denseformer

#endif  // DENSEFORMER_DATA_UNICODE_H_
