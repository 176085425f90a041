#include "analysis/depth_mask.h"

#include <algorithm>

#include "model/depth_forms.h"

namespace denseformer {

DepthMask::DepthMask(const DepthPattern& pattern) : pattern_(pattern) {
  for (int i = 0; i <= pattern.depth(); ++i) {
    keep_.emplace_back(pattern.has_module(i) ? pattern.sources(i).size() - 1 : 0, uint8_t{1});
  }
}

DepthMask::Scores DepthMask::Zeros() const {
  Scores scores;
  for (const auto& row : keep_) scores.emplace_back(row.size(), 0.0);
  return scores;
}

bool DepthMask::HasModule(int i) const {
  return std::any_of(keep_[i].begin(), keep_[i].end(), [](uint8_t keep) { return keep != 0; });
}

void DepthMask::KeepLargest(const Scores& scores, int64_t weights) {
  struct Candidate {
    int i;
    size_t k;
    double score;
  };
  std::vector<Candidate> candidates;
  for (int i = 0; i <= pattern_.depth(); ++i) {
    for (size_t k = 0; k < keep_[i].size(); ++k) {
      if (keeps(i, k)) candidates.push_back({i, k, scores[i][k]});
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.score < b.score; });
  int64_t left = count();
  // What removing it takes: the last older output of a module takes the module along.
  const auto cost = [&](const Candidate& c) {
    return std::count(keep_[c.i].begin(), keep_[c.i].end(), 1) == 1 ? 2 : 1;
  };
  const auto remove = [&](const Candidate& c) {
    left -= cost(c);
    keep_[c.i][c.k] = 0;
  };
  for (const Candidate& c : candidates) {
    if (left - cost(c) >= weights) remove(c);
  }
  // Modules with one older output each, and one weight too many.
  for (const Candidate& c : candidates) {
    if (left > weights && keeps(c.i, c.k)) remove(c);
  }
}

void DepthMask::Apply(const Model& model) const {
  for (int i = 1; i <= pattern_.depth(); ++i) {
    if (!pattern_.has_module(i)) continue;
    float* alpha = model.tensors().alphas[i].f32();
    for (size_t k = 0; k < keep_[i].size(); ++k) {
      if (!keeps(i, k)) alpha[k] = 0;
    }
    if (!HasModule(i)) alpha[keep_[i].size()] = 1;
  }
}

DepthPattern DepthMask::Pattern() const {
  DepthSources sources(static_cast<size_t>(pattern_.depth()) + 1);
  for (int i = 1; i <= pattern_.depth(); ++i) {
    for (size_t k = 0; k < keep_[i].size(); ++k) {
      if (keeps(i, k)) sources[i].push_back(pattern_.sources(i)[k]);
    }
    if (!sources[i].empty()) sources[i].push_back(i);
  }
  return DepthPattern::Parse(MaskSpec(sources), pattern_.depth());
}

}  // namespace denseformer
