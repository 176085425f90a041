#include "cli/output.h"

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"

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

void MakeOutputDirectory(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) ThrowErrno(error.value(), "cannot make the directory {}", path);
}

}  // namespace denseformer
