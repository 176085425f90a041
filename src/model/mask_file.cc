#include "model/mask_file.h"

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "denseformer/depth_pattern.h"
#include "model/depth_forms.h"

namespace denseformer {
namespace {

// A mask of the deepest model that is allowed (config.cc) is smaller.
constexpr size_t kMostBytes = size_t{64} << 20;

}  // namespace

std::string ResolveDepthPattern(const std::string& given, int depth) {
  if (MatchDepthForm(given, depth)) return DepthPattern::Parse(given, depth).ToString();
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(given, ignored)) {
    const bool path = given.find_first_of("/.") != std::string::npos;
    Throw(ErrorCode::kUsage, "depth pattern '{}': expected {}{}", given, DepthFormList(),
          path ? "; there is no file of that name" : "");
  }
  return DepthPattern::FromMask(ReadFile(given, kMostBytes), depth, given).ToString();
}

}  // namespace denseformer
