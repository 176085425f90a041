// Helpers of the tests; no part of the library.
#ifndef DENSEFORMER_BASE_TESTING_H_
#define DENSEFORMER_BASE_TESTING_H_

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/source_directory.h"

namespace denseformer {

// Whether a sanitizer's memory is part of what the process takes. GCC has macros, clang features.
#if !defined(__has_feature)
#define __has_feature(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer) || \
    __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// A directory of its own, removed with its content at the end.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    path_ = (Root() / "denseformer-test-XXXXXX").string();
    if (mkdtemp(path_.data()) == nullptr) ThrowErrno(errno, "cannot make a directory {}", path_);
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

  // Names of what it holds, sorted.
  std::vector<std::string> List() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  // In memory where there is room, as tests sync thousands of times; TMPDIR decides where set.
  static std::filesystem::path Root() {
    std::error_code error;
    const std::filesystem::path memory = "/dev/shm";
    const bool fits = std::filesystem::space(memory, error).available >= size_t{1} << 30 && !error;
    return std::getenv("TMPDIR") == nullptr && fits ? memory
                                                    : std::filesystem::temp_directory_path();
  }

  std::string path_;
};

// The message of the Error that `call` throws, or "no error".
template <class F>
std::string ErrorOf(F&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// Data for extra tests (DENSEFORMER_SHARED, or ../shared beside the source tree); "" where absent.
// A test that wants it skips itself with a message.
inline std::string SharedData(const std::string& name) {
  const char* given = std::getenv("DENSEFORMER_SHARED");
  const std::string root = given != nullptr ? given : SourceDirectory() + "/../shared";
  const std::string path = root + "/data/" + name;
  return std::filesystem::exists(path) ? path : "";
}

}  // namespace denseformer

#endif  // DENSEFORMER_BASE_TESTING_H_
