// error.h: the one exception type of this library.
//
// Whatever comes from outside (a flag, a file, a request, a configuration) and is wrong throws
// Error. The message says which component met it, what was got, what was expected, and where.
// A bug in the library itself is an Error with code kInternal that names file and line.
#ifndef DENSEFORMER_ERROR_H_
#define DENSEFORMER_ERROR_H_

#include <stdexcept>
#include <string>

namespace denseformer {

enum class ErrorCode {
  kUsage,        // a wrong call: unknown flag, value out of range
  kInvalid,      // content that is well-formed but cannot be used: configuration, mask, token
  kNotFound,     // a file, a run, a key that should exist
  kCorrupt,      // a file that is truncated, altered or not what it says
  kIo,           // the operating system refused: full disk, permission
  kBusy,         // in use by another process
  kUnsupported,  // right, but not possible on this machine or in this build
  kNonFinite,    // a loss or a gradient that is not a number
  kInterrupted,  // stopped by a signal after saving
  kInternal,     // a bug
};

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// The name of a code ("usage"), the exit status of a program that ends with it, and the status of
// an HTTP answer that reports it. One table in error.cc.
const char* ErrorName(ErrorCode code);
int ExitStatus(ErrorCode code);
int HttpStatus(ErrorCode code);

}  // namespace denseformer

#endif  // DENSEFORMER_ERROR_H_
