// The machine's limit for a model: the GEMMs of a pass alone, on the same shapes and
// through the same library, with nothing between them.
#ifndef DENSEFORMER_MODEL_GEMM_LIMIT_H_
#define DENSEFORMER_MODEL_GEMM_LIMIT_H_

#include <cstdint>
#include <memory>

#include "model/model.h"

namespace denseformer {

// The GEMMs of a model on batches of `rows` tokens. Weights of one block serve for all, which is
// optimistic: they may stay in cache.
class GemmLimit {
 public:
  GemmLimit(const ModelConfig& config, DType compute, int64_t rows, ModelUse use);
  ~GemmLimit();

  void Forward();   // d blocks and the head
  void Backward();  // input and weight gradients of the same

  // Multiply-adds count 2.
  double forward_flops() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_GEMM_LIMIT_H_
