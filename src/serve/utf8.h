// Text that is fit for JSON.
#ifndef DENSEFORMER_SERVE_UTF8_H_
#define DENSEFORMER_SERVE_UTF8_H_

#include <string>
#include <string_view>

namespace denseformer {

// `text` with U+FFFD for each byte that is not part of a character.
std::string ValidUtf8(std::string_view text);

}  // namespace denseformer

#endif  // DENSEFORMER_SERVE_UTF8_H_
