// For tests: where the sources are.
#ifndef DENSEFORMER_BASE_SOURCE_DIRECTORY_H_
#define DENSEFORMER_BASE_SOURCE_DIRECTORY_H_

#include <string>

namespace denseformer {

// The root of the source tree. A function in a file of its own, so that no other object depends on
// the place of the tree, and clones share what one of them compiled.
std::string SourceDirectory();

}  // namespace denseformer

#endif  // DENSEFORMER_BASE_SOURCE_DIRECTORY_H_
