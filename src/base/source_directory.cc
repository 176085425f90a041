#include "base/source_directory.h"

namespace denseformer {

std::string SourceDirectory() { return DENSEFORMER_SOURCE_DIR; }

}  // namespace denseformer
