#include "denseformer/depth_pattern.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "model/depth_forms.h"

namespace denseformer {

DepthPattern::DepthPattern(int depth)
    : DepthPattern(depth, "none", DepthSources(std::max(depth, 0) + 1)) {}

DepthPattern::DepthPattern(int depth, std::string spec, DepthSources sources)
    : depth_(depth), spec_(std::move(spec)), sources_(std::move(sources)) {
  if (depth < 1) Throw(ErrorCode::kUsage, "depth pattern: depth is {}, expected at least 1", depth);
  readers_.resize(depth + 1);
  for (int i = 1; i <= depth; ++i) {
    for (size_t index = 0; index < sources_[i].size(); ++index) {
      readers_[sources_[i][index]].push_back({i, static_cast<int>(index)});
    }
  }
}

DepthPattern DepthPattern::Parse(std::string_view spec, int depth) {
  if (depth < 1) {
    Throw(ErrorCode::kUsage, "depth pattern '{}': depth is {}, expected at least 1", spec, depth);
  }
  const std::optional<DepthMatch> match = MatchDepthForm(spec, depth);
  if (!match) Throw(ErrorCode::kUsage, "depth pattern '{}': expected {}", spec, DepthFormList());
  DepthSources sources = MakeDepthSources(*match);
  std::string canonical = CanonicalSpec(*match, sources);
  return DepthPattern(depth, std::move(canonical), std::move(sources));
}

DepthPattern DepthPattern::FromMask(std::string_view text, int depth, std::string_view file_name) {
  DepthSources sources = ParseMask(text, depth, file_name);
  std::string spec = MaskSpec(sources);
  return DepthPattern(depth, std::move(spec), std::move(sources));
}

std::string DepthPattern::Forms() { return DepthFormTable(); }

int DepthPattern::module_count() const {
  return static_cast<int>(
      std::count_if(sources_.begin(), sources_.end(), [](const auto& s) { return !s.empty(); }));
}

int64_t DepthPattern::weight_count() const {
  int64_t count = 0;
  for (const auto& s : sources_) count += static_cast<int64_t>(s.size());
  return count;
}

std::string DepthPattern::Picture() const {
  if (module_count() == 0)
    return "no depth-weighted average: every block reads the output of the one before\n";
  std::string text = "after block | reads X_j, j = 0.." + std::to_string(depth_) + "\n";
  for (int i = 1; i <= depth_; ++i) {
    if (!has_module(i)) continue;
    std::string row(i + 1, '.');
    for (int j : sources_[i]) row[j] = '#';
    text += fmt::format("{:11} | {}\n", i, row);
  }
  return text;
}

}  // namespace denseformer
