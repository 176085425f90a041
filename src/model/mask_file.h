// Depth patterns as users give them: a spec, or the path of a mask file.
#ifndef DENSEFORMER_MODEL_MASK_FILE_H_
#define DENSEFORMER_MODEL_MASK_FILE_H_

#include <string>

namespace denseformer {

// The spec (depth_pattern.h) that `given` stands for: itself where it has the form of one, whatever
// files or directories of that name exist, else that of the mask in the file of that name. For what
// a user gives; a stored configuration holds a spec and never depends on a file. Throws Error
// (kUsage) where it is neither, and what DepthPattern::Parse and FromMask throw.
std::string ResolveDepthPattern(const std::string& given, int depth);

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_MASK_FILE_H_
