// Throwing errors with a formatted message.
#ifndef DENSEFORMER_BASE_ERROR_H_
#define DENSEFORMER_BASE_ERROR_H_

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "denseformer/error.h"

namespace denseformer {

template <class... Args>
[[noreturn]] void Throw(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// As Throw(kIo, ...), with the text of `errno` appended.
template <class... Args>
[[noreturn]] void ThrowErrno(int error_number, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(
      error_number == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
      fmt::format(format, std::forward<Args>(args)...) + ": " + std::strerror(error_number));
}

[[noreturn]] void CheckFailed(const char* file, int line, const std::string& message);

// A condition that only a bug can break. Always on: it costs nothing next to the work it guards.
#define DF_CHECK(condition)                                                       \
  do {                                                                            \
    if (!(condition)) ::denseformer::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)

// As DF_CHECK, with a formatted explanation.
#define DF_CHECK_MSG(condition, ...)                                                              \
  do {                                                                                            \
    if (!(condition))                                                                             \
      ::denseformer::CheckFailed(__FILE__, __LINE__, #condition ": " + fmt::format(__VA_ARGS__)); \
  } while (false)

}  // namespace denseformer

#endif  // DENSEFORMER_BASE_ERROR_H_
