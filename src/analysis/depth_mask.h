// Which of the weights alpha_ij of a model are kept: a subset of its depth pattern, as a search for
// a sparser one (mask_search.h) changes it.
//
// A weight of an older output (j < i) that is removed is 0. A module without older outputs is
// removed as a whole, its own weight too, which is then 1: Y_i = X_i, as where a pattern has no
// module.
#ifndef DENSEFORMER_ANALYSIS_DEPTH_MASK_H_
#define DENSEFORMER_ANALYSIS_DEPTH_MASK_H_

#include <cstdint>
#include <vector>

#include "denseformer/depth_pattern.h"
#include "model/model.h"

namespace denseformer {

class DepthMask {
 public:
  // Keeps everything.
  explicit DepthMask(const DepthPattern& pattern);

  // A number for each weight of an older output: values[i][k] of source k of the module after block
  // i (the newest, which is last, has none).
  using Scores = std::vector<std::vector<double>>;
  Scores Zeros() const;

  bool keeps(int i, size_t k) const { return keep_[i][k] != 0; }
  // Weights of older outputs, and the own weight of each module that has any.
  int64_t count() const {
    return CountIf([](int, size_t) { return true; });
  }
  // The same of the kept weights for which also(i, k).
  template <class F>
  int64_t CountIf(F also) const {
    int64_t count = 0;
    for (int i = 1; i <= pattern_.depth(); ++i) {
      const int64_t before = count;
      for (size_t k = 0; k < keep_[i].size(); ++k) count += keeps(i, k) && also(i, k) ? 1 : 0;
      if (count > before) ++count;
    }
    return count;
  }
  // Keeps the older outputs of the largest scores among those that are still kept, so that count()
  // is at most `weights`; one less where every module that remains has a single older output. Of
  // equal scores the later ones stay.
  void KeepLargest(const Scores& scores, int64_t weights);
  // Sets the weights that are removed.
  void Apply(const Model& model) const;
  DepthPattern Pattern() const;

 private:
  bool HasModule(int i) const;

  DepthPattern pattern_;
  std::vector<std::vector<uint8_t>> keep_;  // [d + 1], of the older outputs
};

}  // namespace denseformer

#endif  // DENSEFORMER_ANALYSIS_DEPTH_MASK_H_
