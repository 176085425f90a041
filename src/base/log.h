// Messages to stderr: warnings and notes; results go to stdout and never through here.
#ifndef DENSEFORMER_BASE_LOG_H_
#define DENSEFORMER_BASE_LOG_H_

#include <fmt/format.h>

#include <string>
#include <utility>

namespace denseformer {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Messages below this level are dropped. Default: kInfo; --quiet sets kWarning.
void SetLogLevel(LogLevel level);
void LogMessage(LogLevel level, const std::string& message);

template <class... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  LogMessage(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
void LogWarning(fmt::format_string<Args...> format, Args&&... args) {
  LogMessage(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
void LogError(fmt::format_string<Args...> format, Args&&... args) {
  LogMessage(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace denseformer

#endif  // DENSEFORMER_BASE_LOG_H_
