#include "cli/output.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/output_file.h"

namespace denseformer {

void WriteStdout(std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) {
    ThrowErrno(errno, "cannot write to standard output");
  }
}

void FlushStdout() {
  errno = 0;
  if (std::fflush(stdout) != 0) ThrowErrno(errno, "cannot write to standard output");
}

void PrintJson(const nlohmann::ordered_json& result) {
  using Json = nlohmann::ordered_json;
  WriteStdout(result.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n");
}

void RequireWritable(const std::string& path) {
  if (path.empty() || path == "-" || IsStream(path)) return;
  std::error_code unknown;
  // A symbolic link stays, and the file that it leads to is replaced.
  const std::filesystem::path file = std::filesystem::weakly_canonical(path, unknown);
  std::string parent = (file.empty() ? std::filesystem::path(path) : file).parent_path();
  if (parent.empty()) parent = ".";
  if (!std::filesystem::is_directory(parent, unknown)) {
    Throw(ErrorCode::kNotFound, "cannot write {}: there is no directory {}", path, parent);
  }
  if (access(parent.c_str(), W_OK | X_OK) != 0) ThrowErrno(errno, "cannot write {}", path);
}

void MakeOutputDirectory(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) ThrowErrno(error.value(), "cannot make the directory {}", path);
}

}  // namespace denseformer
