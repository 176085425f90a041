// libtorch's AdamW on the weights of a model, with the decay groups of the recipe.
#ifndef DENSEFORMER_TESTS_ORACLE_TORCH_ADAMW_H_
#define DENSEFORMER_TESTS_ORACLE_TORCH_ADAMW_H_

#include <memory>
#include <vector>

#include "model/model.h"

namespace denseformer {

struct TorchAdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
};

class TorchAdamW {
 public:
  // The model must outlive it.
  TorchAdamW(Model& model, const TorchAdamWOptions& options);
  ~TorchAdamW();

  // One step with gradients laid out as model.gradients(); clipped by torch's clip_grad_norm_ where
  // `clip` is not 0. The new weights are in the model afterwards.
  void Step(const std::vector<double>& gradients, double rate, double clip);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_TESTS_ORACLE_TORCH_ADAMW_H_
