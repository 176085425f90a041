// Results on stdout. Each write is checked: a full disk or a closed pipe is an Error, never a
// silently shortened result.
#ifndef DENSEFORMER_CLI_OUTPUT_H_
#define DENSEFORMER_CLI_OUTPUT_H_

#include <fmt/format.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace denseformer {

// Buffered; throws kIo.
void WriteStdout(std::string_view text);
// Pushes out what is buffered; main calls it once more at the end.
void FlushStdout();

// Throws kNotFound or kIo where a file could not be created in the directory of `path`: a command
// that works for long says so at its start. Nothing to check: "", "-", and devices and pipes.
void RequireWritable(const std::string& path);

// The directory for a command's files, made with its parents; throws kIo where it cannot be.
void MakeOutputDirectory(const std::string& path);

template <class... Args>
void Print(fmt::format_string<Args...> format, Args&&... args) {
  WriteStdout(fmt::format(format, std::forward<Args>(args)...));
}

// The result of a command with --json: one object, indented, and a line feed. Keys keep the order
// in which they were added. Text that is not UTF-8 is written with replacement characters.
void PrintJson(const nlohmann::ordered_json& result);

}  // namespace denseformer

#endif  // DENSEFORMER_CLI_OUTPUT_H_
