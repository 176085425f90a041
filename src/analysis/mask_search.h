// Learned sparsity: which few of the weights of a trained model are worth keeping? The result is a
// depth pattern (a mask), to be trained from scratch like any other.
//
// Both methods train the whole model on from its checkpoint, with removed weights held at 0
// (depth_mask.h), for a fixed number of steps:
//   penalty  an L1 penalty on the weights of older outputs, as a proximal step after each update:
//              alpha = sign(alpha) max(|alpha| - rate * lambda, 0)
//            AdamW moves a weight by at most about `rate`, so that lambda = 1 holds back whatever
//            the gradient wants. lambda grows while more weights are left than a cubic curve from
//            all to the wanted number allows, and falls otherwise. After 4/5 of the steps the
//            largest |alpha_ij| stay, and the rest of the steps trains them without the penalty.
//   greedy   rounds of training; each then removes the weights with the smallest
//            sum over batches of (alpha * dalpha)^2, the first-order estimate of what removing them
//            does to the loss, so that their number falls by the same factor per round. A last
//            round trains what is left.
#ifndef DENSEFORMER_ANALYSIS_MASK_SEARCH_H_
#define DENSEFORMER_ANALYSIS_MASK_SEARCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "data/batches.h"
#include "denseformer/depth_pattern.h"
#include "model/model.h"
#include "train/options.h"

namespace denseformer {

struct SearchOptions {
  std::string method = "penalty";
  int64_t weights = 0;  // to keep, at most
  int rounds = 8;       // of greedy
};

// "penalty", "greedy".
std::vector<std::string> SearchMethods();

// After one step.
struct SearchPoint {
  int64_t step = 0, weights = 0;
  double loss = 0;  // of the training batch
};

struct SearchResult {
  DepthPattern pattern;
  std::vector<SearchPoint> course;  // of every step
};

// Changes the weights of the model, which must be trainable. Of `options` it takes steps, learning
// rate with its schedule, batch size and the rest of the optimizer's; batches continue after
// `first` (a step of the run). Throws kUsage where the model has no static weights of one stream,
// or not more than are to be kept; kNonFinite where the loss is not finite; kInterrupted after a
// signal.
SearchResult SearchMask(Model& model, const TrainBatches& batches, int64_t first,
                        const TrainOptions& options, const SearchOptions& search);

}  // namespace denseformer

#endif  // DENSEFORMER_ANALYSIS_MASK_SEARCH_H_
