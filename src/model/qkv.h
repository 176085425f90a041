// Queries, keys and values of a block. Usually one GEMM reads the block's LayerNorm; where k and v,
// or all three, have streams of their own (mixer_spec.h), each part of the matrix reads the norm of
// its own stream:
//   rv     [q k] from ln_1(Y^r), v from ln_v(Y^v)
//   rqkv   q from ln_1(Y^q), k from ln_k(Y^k), v from ln_v(Y^v)
#ifndef DENSEFORMER_MODEL_QKV_H_
#define DENSEFORMER_MODEL_QKV_H_

#include <array>

#include "model/activations.h"
#include "model/model.h"

namespace denseformer {

// A LayerNorm at the start of block i, and the stream of depth i - 1 that it reads.
struct StreamNorm {
  int stream = 0;       // index among the streams of the mixer
  Tensor weight, bias;  // [D]
  Tensor out;           // [N, D] compute
  Tensor mean, rstd;    // [N]
};

// A short list without allocation.
struct StreamNorms {
  std::array<StreamNorm, 3> norm;
  size_t count = 0;

  void Add(const StreamNorm& next) { norm[count++] = next; }
  size_t size() const { return count; }
  const StreamNorm& operator[](size_t p) const { return norm[p]; }
  const StreamNorm* begin() const { return norm.data(); }
  const StreamNorm* end() const { return norm.data() + count; }
};

// The norms of block i (1..d), one for each part of its qkv matrix.
StreamNorms BlockNorms(const ModelTensors& tensors, int i, Activations& activations);

// b.qkv of block i without rotary embeddings, from the outputs of its norms.
void QkvForward(const Model& model, int i, Activations& activations);

// dqkv -> gradients of the matrix, the bias and the norms, and of the streams of depth i - 1. dy_r
// receives the gradient of the residual stream: activations.dx plus what comes through the norms.
void QkvBackward(const Model& model, int i, Gradients gradients, const Tensor& dy_r,
                 Activations& activations);

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_QKV_H_
