// Random changes to the bytes of a file, for tests of its reader; no part of the library.
#ifndef DENSEFORMER_BASE_MUTATION_TESTING_H_
#define DENSEFORMER_BASE_MUTATION_TESTING_H_

#include <string>
#include <string_view>

#include "base/random.h"

namespace denseformer {

// One to four edits: a byte changed, some removed, one of `alphabet` inserted, or a part of the
// text repeated elsewhere. Never empty.
inline std::string Mutated(std::string text, std::string_view alphabet, Random& random) {
  for (uint64_t edits = 1 + random.Below(4); edits > 0; --edits) {
    if (text.empty()) text = "x";
    const size_t at = random.Below(text.size());
    switch (random.Below(4)) {
      case 0:
        text[at] = static_cast<char>(random.Next32());
        break;
      case 1:
        text.erase(at, 1 + random.Below(8));
        break;
      case 2:
        text.insert(at, 1, alphabet[random.Below(alphabet.size())]);
        break;
      default:
        text.insert(at, text.substr(random.Below(text.size()), random.Below(16)));
    }
  }
  return text.empty() ? "x" : text;
}

}  // namespace denseformer

#endif  // DENSEFORMER_BASE_MUTATION_TESTING_H_
