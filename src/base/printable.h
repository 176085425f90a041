// Text from outside in messages.
#ifndef DENSEFORMER_BASE_PRINTABLE_H_
#define DENSEFORMER_BASE_PRINTABLE_H_

#include <string>
#include <string_view>

namespace denseformer {

// Text as one line that a terminal shows as it is: control characters, which names of files may
// hold, become \n, \t, \r or \xNN.
std::string Printable(std::string_view text);

}  // namespace denseformer

#endif  // DENSEFORMER_BASE_PRINTABLE_H_
