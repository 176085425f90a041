// What a model is and what it costs, from its configuration alone: nothing of its size is
// allocated.
#ifndef DENSEFORMER_MODEL_SUMMARY_H_
#define DENSEFORMER_MODEL_SUMMARY_H_

#include <cstdint>

#include "denseformer/config.h"
#include "model/stage.h"
#include "tensor/dtype.h"
#include "tensor/weight_format.h"

namespace denseformer {

// Floating-point operations of a forward pass for one token, where a multiplication and an addition
// count as two, in sequences of `length` tokens:
//   linear layers       24 D^2 per block
//   attention           2 D (length + 1) per block: scores and their products with the values, each
//                       2 D a pair of positions; a position sees (length + 1) / 2 on average
//   head                2 V D
//   depth averages      2 D per weight; dynamic mixers 2 h (D + h) more per module, h = C n;
//                       attention mixers 2 D per weight for the scores
// Element-wise work (LayerNorm, rotary, GELU, softmax, residual additions) is not counted.
struct FlopsPerToken {
  int64_t linear = 0, attention = 0, head = 0, dwa = 0;
  int64_t total() const { return linear + attention + head + dwa; }
};
FlopsPerToken ForwardFlops(const ModelConfig& config, int64_t length);

// What a training step does more with recomputation of activations (activations.h): all blocks but
// the last go forward once more, without the last GEMM of the MLP.
int64_t RecomputeFlopsPerToken(const ModelConfig& config, int64_t length);

// Memory in bytes of a process that runs passes over `sequences` x `length` tokens.
struct MemoryUse {
  int64_t program = 0;      // code, libraries and compiled GEMMs, measured once
  int64_t weights = 0;      // fp32 master weights; for inference those that are no matrices
  int64_t copies = 0;       // of weights, as GEMMs read them
  int64_t gradients = 0;    // training only
  int64_t moments = 0;      // of AdamW, training only
  int64_t activations = 0;  //
  int64_t cache = 0;        // keys and values, generation only
  int64_t loading = 0;      // what loading takes beyond all that, generation only
  int64_t total() const {
    return program + weights + copies + gradients + moments + activations + cache + loading;
  }
};
// `ranks` processes share the moments, and in bf16 the fp32 masters of the blocks' matrices.
MemoryUse TrainingMemory(const ModelConfig& config, DType compute, int64_t sequences,
                         int64_t length, bool recompute = false, int ranks = 1);
// Of a process that holds a stage of a pipeline.
struct StageUse {
  const Stage* stage = nullptr;
  int micro_batches = 1;  // under way
  int copies = 1;         // of the pipeline, which share the moments
};
MemoryUse StageMemory(const ModelConfig& config, DType compute, int64_t sequences, int64_t length,
                      bool recompute, const StageUse& use);
// Of a frozen model (model.h).
MemoryUse InferenceMemory(const ModelConfig& config, WeightFormat format, int64_t sequences,
                          int64_t length);

// Of a frozen model that generates `sequences` texts of `length` tokens each at the same time, in
// steps of `rows` tokens.
MemoryUse GenerationMemory(const ModelConfig& config, WeightFormat format, int64_t rows,
                           int64_t sequences, int64_t length);

// What recomputation costs and saves in a training step of one pass.
struct RecomputeEffect {
  double more_operations = 0;  // as a share of the step's: forward, and twice that for backward
  int64_t saved_bytes = 0;
};
RecomputeEffect EffectOfRecompute(const ModelConfig& config, DType compute, int64_t sequences,
                                  int64_t length);

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_SUMMARY_H_
