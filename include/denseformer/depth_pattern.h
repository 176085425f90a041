// depth_pattern.h: which earlier outputs does the depth-weighted average after block i read?
//
// Blocks are numbered 1..d. X_0 is the embedding, X_i the output of block i, Y_i what block i + 1
// reads and Y_d what the final LayerNorm reads. The module after block i gives
//   Y_i = sum over j in S_i of alpha_ij X_j;   where there is no module, Y_i = X_i.
// The one answer for model, kernels, parameter counts, checkpoints and plots. With which weights
// alpha_ij is not its business.
//
// A spec names a pattern, such as "none" or "KxP": a module after every i that P divides, with
// S_i = { j <= i : j = i mod K }. DepthPattern::Forms() and docs/options.md describe every form.
#ifndef DENSEFORMER_DEPTH_PATTERN_H_
#define DENSEFORMER_DEPTH_PATTERN_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace denseformer {

class DepthPattern {
 public:
  // No modules.
  explicit DepthPattern(int depth);

  // From a spec as above, or "mask:" followed by rows of 0 and 1 separated by '/' (what ToString
  // gives for a custom pattern). Throws Error (kUsage) that says what would be right.
  static DepthPattern Parse(std::string_view spec, int depth);

  // From the text of a mask file: d lines (one per block, from block 1) of up to d + 1 digits 0/1
  // (column j = source X_j; spaces and commas between digits, empty lines and lines from '#' are
  // ignored; missing digits at the end are 0). Line i must have nothing beyond column i; a line
  // with any source must have X_i itself. Throws Error (kInvalid) that names the line.
  static DepthPattern FromMask(std::string_view text, int depth, std::string_view file_name);

  // A Markdown table of the forms of a spec.
  static std::string Forms();

  int depth() const { return depth_; }
  // The spec, such that Parse(ToString(), depth()) gives this pattern again.
  const std::string& ToString() const { return spec_; }

  bool has_module(int i) const { return !sources_[i].empty(); }
  // S_i in ascending order (oldest first), 0 <= i <= d; empty where there is no module.
  const std::vector<int>& sources(int i) const { return sources_[i]; }

  struct Reader {
    int depth;  // of the module
    int index;  // of the source within its S_i
  };
  // The modules that read X_j, in ascending order of depth.
  const std::vector<Reader>& readers(int j) const { return readers_[j]; }

  int module_count() const;
  int64_t weight_count() const;

  // A drawing as text: one row per module, one column per source.
  std::string Picture() const;

  bool operator==(const DepthPattern& other) const { return sources_ == other.sources_; }

 private:
  DepthPattern(int depth, std::string spec, std::vector<std::vector<int>> sources);

  int depth_ = 0;
  std::string spec_;
  std::vector<std::vector<int>> sources_;  // [d + 1]
  std::vector<std::vector<Reader>> readers_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_DEPTH_PATTERN_H_
