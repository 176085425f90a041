#include "denseformer/depth_pattern.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace denseformer {
namespace {

constexpr const char* kForms =
    "none, KxP (such as 1x1 or 4x5), grouped:KxP, last:K, final or a mask file";

[[noreturn]] void Wrong(std::string_view spec, const std::string& why) {
  Throw(ErrorCode::kUsage, "depth pattern '{}': {}", spec, why);
}

int ParsePart(std::string_view spec, std::string_view part, const char* letter) {
  const bool digits =
      !part.empty() && part.size() <= 6 &&
      std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!digits) Wrong(spec, fmt::format("expected {}", kForms));
  const int value = static_cast<int>(ParseInt(letter, part, 0, 999999));
  if (value == 0) Wrong(spec, fmt::format("{} is 0, expected at least 1", letter));
  return value;
}

// "KxP" -> {K, P}, checked against the depth.
std::pair<int, int> ParseDilationPeriod(std::string_view spec, std::string_view text, int depth) {
  const size_t x = text.find('x');
  if (x == std::string_view::npos) Wrong(spec, fmt::format("expected {}", kForms));
  const int dilation = ParsePart(spec, text.substr(0, x), "K");
  const int period = ParsePart(spec, text.substr(x + 1), "P");
  if (period > depth) {
    Wrong(spec,
          fmt::format("period P = {} is larger than the depth {}, so there would be no module",
                      period, depth));
  }
  return {dilation, period};
}

using Sources = std::vector<std::vector<int>>;

Sources DilatedSources(int dilation, int period, int depth) {
  Sources sources(depth + 1);
  for (int i = period; i <= depth; i += period) {
    for (int j = i % dilation; j <= i; j += dilation) sources[i].push_back(j);
  }
  return sources;
}

// The same on the sequence of every P-th output.
Sources GroupedSources(int dilation, int period, int depth) {
  Sources sources(depth + 1);
  for (int i = period; i <= depth; i += period) {
    for (int q = i / period % dilation; q <= i / period; q += dilation)
      sources[i].push_back(q * period);
  }
  return sources;
}

Sources LastSources(int count, int depth) {
  Sources sources(depth + 1);
  for (int i = 1; i <= depth; ++i) {
    sources[i].push_back(0);
    for (int j = std::max(1, i - count + 1); j <= i; ++j) sources[i].push_back(j);
  }
  return sources;
}

// One row of a mask; returns an empty string, or what is wrong with it.
std::string ParseMaskRow(std::string_view digits, int depth, int i, std::vector<int>& sources) {
  int column = 0;
  for (char c : digits) {
    if (c == ' ' || c == ',' || c == '\t' || c == '\r') continue;
    if (c != '0' && c != '1') return fmt::format("unexpected character '{}', expected 0 or 1", c);
    if (c == '1') {
      if (column > i) {
        return fmt::format(
            "block {} cannot read X_{}: only outputs up to X_{} exist (the mask must be lower "
            "triangular)",
            i, column, i);
      }
      sources.push_back(column);
    }
    if (++column > depth + 1) return fmt::format("more than {} columns", depth + 1);
  }
  if (!sources.empty() && sources.back() != i) {
    return fmt::format("block {} must read its own output X_{} where it reads anything", i, i);
  }
  return "";
}

std::string MaskSpec(const Sources& sources) {
  std::string spec = "mask:";
  for (size_t i = 1; i < sources.size(); ++i) {
    std::string row(i + 1, '0');
    for (int j : sources[i]) row[j] = '1';
    spec += (i > 1 ? "/" : "") + row;
  }
  return spec;
}

}  // namespace

DepthPattern::DepthPattern(int depth)
    : DepthPattern(depth, "none", Sources(std::max(depth, 0) + 1)) {}

DepthPattern::DepthPattern(int depth, std::string spec, Sources sources)
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
  constexpr std::string_view kGrouped = "grouped:", kLast = "last:", kMask = "mask:";
  if (depth < 1) Wrong(spec, fmt::format("depth is {}, expected at least 1", depth));
  if (spec == "none") return DepthPattern(depth);
  if (spec == "final") {
    Sources sources(depth + 1);
    for (int j = 0; j <= depth; ++j) sources[depth].push_back(j);
    return DepthPattern(depth, "final", std::move(sources));
  }
  if (spec.starts_with(kLast)) {
    const int count = ParsePart(spec, spec.substr(kLast.size()), "K");
    return DepthPattern(depth, fmt::format("last:{}", count), LastSources(count, depth));
  }
  if (spec.starts_with(kGrouped)) {
    const auto [dilation, period] = ParseDilationPeriod(spec, spec.substr(kGrouped.size()), depth);
    if (depth % period != 0) {
      Wrong(spec, fmt::format("period P = {} does not divide the depth {}", period, depth));
    }
    return DepthPattern(depth, fmt::format("grouped:{}x{}", dilation, period),
                        GroupedSources(dilation, period, depth));
  }
  if (spec.starts_with(kMask)) {
    std::string rows(spec.substr(kMask.size()));
    std::replace(rows.begin(), rows.end(), '/', '\n');
    return FromMask(rows, depth, "mask");
  }
  const auto [dilation, period] = ParseDilationPeriod(spec, spec, depth);
  return DepthPattern(depth, fmt::format("{}x{}", dilation, period),
                      DilatedSources(dilation, period, depth));
}

DepthPattern DepthPattern::FromMask(std::string_view text, int depth, std::string_view file_name) {
  if (depth < 1) Throw(ErrorCode::kUsage, "{}: depth is {}, expected at least 1", file_name, depth);
  Sources sources(depth + 1);
  int row = 0, line_number = 0;
  for (const std::string& line : Split(text, '\n')) {
    ++line_number;
    const std::string_view digits = Trim(line);
    if (digits.empty() || digits.front() == '#') continue;
    if (++row > depth) {
      Throw(ErrorCode::kInvalid, "{}:{}: more rows than the {} blocks of the model", file_name,
            line_number, depth);
    }
    const std::string wrong = ParseMaskRow(digits, depth, row, sources[row]);
    if (!wrong.empty()) Throw(ErrorCode::kInvalid, "{}:{}: {}", file_name, line_number, wrong);
  }
  if (row != depth) {
    Throw(ErrorCode::kInvalid, "{}: {} rows, expected {} (one a block)", file_name, row, depth);
  }
  std::string spec = MaskSpec(sources);
  return DepthPattern(depth, std::move(spec), std::move(sources));
}

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
