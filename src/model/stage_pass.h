// The passes of one stage of a pipeline, between its cuts (stage.h). What crosses a cut is a list
// of tensors in a fixed order (the stream, then sources, then partial sums), and of equal shapes on
// both sides of it: the caller moves each from one to the other.
//
//   forward   receive ForwardTensors(in);  StageForward;  send ForwardTensors(out)
//   backward  receive BackwardTensors(out); StageBackward; send BackwardTensors(in)
//
// Gradients of the shared parameters, the weights of the averages and the embedding, hold this
// stage's part of the sum.
#ifndef DENSEFORMER_MODEL_STAGE_PASS_H_
#define DENSEFORMER_MODEL_STAGE_PASS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "model/backward.h"

namespace denseformer {

enum class CutSide { kIn, kOut };

// Filled into `tensors`, which a steady caller uses again; empty on the first stage with kIn and on
// the last with kOut. Where sent tensors are received again as gradients, they share memory.
void ForwardTensors(const Model& model, CutSide side, Activations& activations,
                    std::vector<Tensor>& tensors);
void BackwardTensors(const Model& model, CutSide side, Activations& activations,
                     std::vector<Tensor>& tensors);

// The blocks of the stage; the activations have the shape of the batch. The last stage ends with
// LayerNorm(Y_d) in activations.ln_f, which head.h reads. `block_done` is called after each block.
void StageForward(const Model& model, std::span<const int32_t> tokens,
                  const DropoutOptions& dropout, Activations& activations,
                  const BlockDone& block_done = {});

// The mirror: after HeadLossBackward on the last stage, after BackwardTensors(kOut) have come on
// the others. StartBackward goes before it.
void StageBackward(const Model& model, std::span<const int32_t> tokens,
                   const DropoutOptions& dropout, Gradients gradients, Activations& activations,
                   const BlockDone& block_done = {});

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_STAGE_PASS_H_
