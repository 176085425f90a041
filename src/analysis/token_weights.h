// The weights a_sj of the depth mixers of a model over the tokens of a stream: mean, spread, and
// how concentrated they are (docs/mixers.md has the formulas).
#ifndef DENSEFORMER_ANALYSIS_TOKEN_WEIGHTS_H_
#define DENSEFORMER_ANALYSIS_TOKEN_WEIGHTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/depth_weights.h"
#include "data/token_file.h"
#include "model/model.h"

namespace denseformer {

// Of one stream. A weight is the number that its source (X_j; rms(X_j) with prepost; the increment
// V_j of attention and attnres) is multiplied by, with the gate of attention.
struct StreamWeights {
  std::string stream;           // "r", "q", "k" or "v"
  DepthMatrix mean, spread;     // over tokens: mean, standard deviation
  std::vector<double> entropy;  // [d + 1], in nats, of |a_sj| as shares; NaN without a module
  std::vector<double> newest;   // [d + 1]: mean share of the newest source; NaN without a module
};

struct TokenWeights {
  int64_t tokens = 0;
  std::vector<StreamWeights> streams;
};

// Over the first `most_tokens` tokens of the file, in whole windows. Throws kInvalid where the
// model has no mixer with weights of its own per stream or token: static weights of the residual
// stream are one number each (depth_weights.h).
TokenWeights MeasureTokenWeights(const Model& model, const TokenFile& file, int64_t most_tokens,
                                 const std::string& name);

}  // namespace denseformer

#endif  // DENSEFORMER_ANALYSIS_TOKEN_WEIGHTS_H_
