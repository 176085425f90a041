// Into the depth of a model at one token: what each module reads of each earlier output, and what
// the model would predict from every depth.
//
// A module's stream is a sum of contributions, Y = sum of weight * vector, where the vector is an
// output X_j, an increment V_j = X_j - Y_{j-1} (attention, attnres), or with prepost post * X_j by
// element. So weight * norm is how much of Y a source makes up, for every mixer. The prediction of
// depth i is the head on the final LayerNorm of Y_i (the logit lens); that of the last depth is the
// model's own.
#ifndef DENSEFORMER_INFER_DEPTH_VIEW_H_
#define DENSEFORMER_INFER_DEPTH_VIEW_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "denseformer/generator.h"
#include "denseformer/model.h"

namespace denseformer {

struct DepthContribution {
  int source = 0;          // j: 0 is the embedding
  bool increment = false;  // the vector is V_j
  double weight = 0;       // of this token
  double norm = 0;         // of the vector
};

struct DepthModuleView {
  int depth = 0;        // after this block
  std::string stream;   // "r", "q", "k" or "v"
  double norm = 0;      // of Y
  double sum_norm = 0;  // of the sum of the contributions: the same but for rounding
  std::vector<DepthContribution> contributions;
};

struct DepthPrediction {
  int depth = 0;
  double x_norm = 0, y_norm = 0;
  std::vector<TokenProbability> likeliest;  // most probable first
  TokenProbability next;                    // of the token asked for
  int64_t next_rank = 0;                    // 1: the likeliest; 0: none was asked for
};

struct DepthView {
  std::vector<DepthModuleView> modules;
  std::vector<DepthPrediction> predictions;  // depth 0 to d
};

// At the last of `tokens`. `next` is the token whose probability every depth is asked for, or -1.
// Throws kInvalid for no tokens, too many, or one outside the vocabulary.
DepthView ViewDepth(const LanguageModel& model, std::span<const int32_t> tokens, int32_t next,
                    int likeliest);

}  // namespace denseformer

#endif  // DENSEFORMER_INFER_DEPTH_VIEW_H_
