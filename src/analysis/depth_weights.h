// The weights of the depth-weighted averages of one model, and their mean over several.
#ifndef DENSEFORMER_ANALYSIS_DEPTH_WEIGHTS_H_
#define DENSEFORMER_ANALYSIS_DEPTH_WEIGHTS_H_

#include <string>
#include <vector>

#include "denseformer/depth_pattern.h"
#include "model/model.h"

namespace denseformer {

// value[i][j]: weight of X_j in the module after block i (1..d), NaN where there is none; row 0 is
// all NaN.
struct DepthMatrix {
  int depth = 0;
  std::vector<std::vector<double>> value;
};

DepthMatrix EmptyDepthMatrix(int depth);

// Throws kInvalid where the model has no depth-weighted averages; `name` stands in the message.
void RequireModules(const Model& model, const std::string& name);

// Throws as RequireModules, and kUnsupported where a weight is not one number.
DepthMatrix DepthWeights(const Model& model, const std::string& name);

struct DepthMean {
  DepthMatrix mean;
  DepthMatrix standard_error;  // of the mean; NaN for one run
  int runs = 0;
};

// Mean over runs. Throws kInvalid where their depths or sources differ, naming both.
DepthMean MeanDepthWeights(const std::vector<DepthMatrix>& runs,
                           const std::vector<std::string>& names);

// What a module relies on: the sources of each module by the size of their contribution.
struct SourceShare {
  int source = 0;
  double weight = 0;
  double share = 0;  // |weight| * norm of X_source, over the sum of those of the module
};

// shares[i]: sources of the module after block i, largest share first; empty where there is none.
// norms[j] is the mean norm of X_j (similarity.h); empty: all 1.
std::vector<std::vector<SourceShare>> SourceShares(const DepthMatrix& weights,
                                                   const std::vector<double>& norms);

}  // namespace denseformer

#endif  // DENSEFORMER_ANALYSIS_DEPTH_WEIGHTS_H_
