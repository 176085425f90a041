// A result that goes where a user says (--output).
#ifndef DENSEFORMER_BASE_OUTPUT_FILE_H_
#define DENSEFORMER_BASE_OUTPUT_FILE_H_

#include <string>
#include <string_view>

namespace denseformer {

// Whether `path` is a device or a pipe.
bool IsStream(const std::string& path);

// A device or a pipe is written to as it is. Any other file appears whole or not at all, as with
// AtomicFile: a symbolic link stays, and the file that it leads to is replaced. Throws kInvalid for
// a directory or a socket.
void WriteOutputFile(const std::string& path, std::string_view content);

}  // namespace denseformer

#endif  // DENSEFORMER_BASE_OUTPUT_FILE_H_
