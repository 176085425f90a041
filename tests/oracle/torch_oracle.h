// The same model written in libtorch, with autograd for the gradients: what the engine is compared
// with. This header knows nothing of libtorch, so that only torch_oracle.cc compiles its headers.
#ifndef DENSEFORMER_TESTS_ORACLE_TORCH_ORACLE_H_
#define DENSEFORMER_TESTS_ORACLE_TORCH_ORACLE_H_

#include <map>
#include <string>
#include <vector>

#include "model/forward.h"
#include "model/model.h"

namespace denseformer {

enum class OraclePrecision { kSingle, kDouble };

struct OracleResult {
  double loss = 0;
  std::vector<double> logits;     // [N, V]
  std::vector<double> gradients;  // of the mean loss, laid out as model.gradients()
  // Of each alpha and gain tensor: the largest, over its weights w, of the root of the sum of the
  // squares of all products x dy that dw = <x, dy> adds up. The size of dw where they do not
  // cancel.
  std::map<std::string, double> product_norms;
};

// Reads the weights of `model` by their names; gradients only where the batch has targets.
OracleResult RunOracle(const Model& model, const Batch& batch, OraclePrecision precision);

}  // namespace denseformer

#endif  // DENSEFORMER_TESTS_ORACLE_TORCH_ORACLE_H_
