// GPT-2's splitting of a text into pieces that BPE then encodes one by one. The same pieces as the
// regular expression
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// gives (split_test.cc compares with PCRE2), in one pass without backtracking: linear whatever the
// text. Letters and numbers are those of one Unicode version (unicode.cc).
#ifndef DENSEFORMER_DATA_SPLIT_H_
#define DENSEFORMER_DATA_SPLIT_H_

#include <algorithm>
#include <string_view>

#include "data/unicode.h"

namespace denseformer {

// The length of the contraction at p ('s 't 'm 'd 're 've 'll), or 0.
inline int ContractionLength(const unsigned char* p, const unsigned char* end) {
  if (*p != '\'' || end - p < 2) return 0;
  if (p[1] == 's' || p[1] == 't' || p[1] == 'm' || p[1] == 'd') return 2;
  if (end - p < 3) return 0;
  const bool two =
      (p[1] == 'r' && p[2] == 'e') || (p[1] == 'v' && p[2] == 'e') || (p[1] == 'l' && p[2] == 'l');
  return two ? 3 : 0;
}

// The end of the run of characters of `char_class` that starts at p.
inline const unsigned char* RunEnd(const unsigned char* p, const unsigned char* end,
                                   CharClass char_class) {
  for (;;) {
    while (p < end && kByteClass[*p] == char_class) ++p;
    if (p == end || kByteClass[*p] != kMultibyte) return p;
    const ClassifiedChar next = ClassifyMultibyte(p, end);
    if (next.char_class != char_class) return p;
    p += next.length;
  }
}

// The end of the piece that starts at p with white space of `first_length` bytes. White space
// before something else leaves its last character to the next piece, which takes it along if it is
// ' '.
inline const unsigned char* SpaceEnd(const unsigned char* p, const unsigned char* end,
                                     int first_length) {
  const unsigned char* last = p;  // where the last character of the run starts
  const unsigned char* stop = p + first_length;
  while (stop < end) {
    const ClassifiedChar next = Classify(stop, end);
    if (next.char_class != kSpace) return last > p ? last : stop;
    last = stop;
    stop += next.length;
  }
  return stop;
}

// Calls piece(begin, length) for each piece; the pieces cover the text in order.
template <class F>
void SplitText(std::string_view text, F&& piece) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  const unsigned char* const end = p + text.size();
  while (p < end) {
    const unsigned char* stop;
    if (const int contraction = ContractionLength(p, end)) {
      stop = p + contraction;
    } else {
      ClassifiedChar first = Classify(p, end);
      const unsigned char* start = p;
      if (*p == ' ' && p + 1 < end) {
        // The optional space in front of a word.
        const ClassifiedChar second = Classify(p + 1, end);
        if (second.char_class != kSpace) {
          first = second;
          ++start;
        }
      }
      stop = first.char_class == kSpace ? SpaceEnd(p, end, first.length)
                                        : RunEnd(start + first.length, end, first.char_class);
    }
    piece(reinterpret_cast<const char*>(p), static_cast<size_t>(stop - p));
    p = stop;
  }
}

// A place at or before `most` where the text can be cut so that both parts split as the whole does:
// between an ASCII character that is no space and a space or line feed. 0 where there is none.
inline size_t SafeCut(std::string_view text, size_t most) {
  if (text.empty()) return 0;
  for (size_t at = std::min(most, text.size() - 1); at > 0; --at) {
    const auto before = static_cast<unsigned char>(text[at - 1]);
    if ((text[at] == ' ' || text[at] == '\n') && before < 0x80 && kByteClass[before] != kSpace) {
      return at;
    }
  }
  return 0;
}

}  // namespace denseformer

#endif  // DENSEFORMER_DATA_SPLIT_H_
