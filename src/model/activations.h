// The memory of a pass through the model, planned once for the largest batch.
//
// Evaluation keeps one set of block activations and reuses it for every block; training keeps one
// set per block for the backward pass, or a single one where the backward pass recomputes it block
// by block from Y_{i-1}, which is always kept. Depth outputs:
//   y(i)        Y_i, fp32: what block i + 1 reads; X_i is computed in the same buffer where depth i
//               has no module, or where the history holds bf16 copies
//   history(i)  X_i as later averages read it: in bf16 a copy, in fp32 a buffer of its own where
//               depth i has a module, else y(i) itself; empty where no module reads it
#ifndef DENSEFORMER_MODEL_ACTIVATIONS_H_
#define DENSEFORMER_MODEL_ACTIVATIONS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/dwa/dwa.h"
#include "kernels/dwa/mix_rows.h"
#include "model/model.h"
#include "tensor/storage.h"

namespace denseformer {

// Base of the rotary angles (rotary.h).
inline constexpr double kRotaryBase = 10000;

// Of one block; N = sequences * length rows. `compute` is fp32 or bf16.
struct BlockActivations {
  Tensor ln_1_mean, ln_1_rstd;  // [N]
  Tensor ln_1;                  // [N, D] compute
  Tensor qkv;                   // [B, T, 3D] compute, rotated
  Tensor lse;                   // [B, H, T]
  Tensor attention;             // [B, T, D] compute
  Tensor x_mid;                 // [N, D] fp32, between attention and MLP
  Tensor ln_2_mean, ln_2_rstd;  // [N]
  Tensor ln_2;                  // [N, D] compute
  Tensor fc;                    // [N, 4D] compute, before GELU; training only
  Tensor gelu;                  // [N, 4D] compute
  // Norms of k and v where they have streams of their own (qkv.h).
  Tensor ln_k, ln_k_mean, ln_k_rstd;
  Tensor ln_v, ln_v_mean, ln_v_rstd;
};

// Of the module after one block, n sources and C streams; training keeps a set per module.
struct MixerActivations {
  Tensor norm, rstd;  // [N, D] compute, [N]: rms(X_i); dynamic
  Tensor hidden;      // [N, C n] compute, before GELU; dynamic, training only
  Tensor gelu;        // [N, C n] compute; dynamic
  Tensor weights;     // [N, C n] fp32, the streams one after the other: a_sj, or the softmax
};

class Activations {
 public:
  // For batches of up to max_sequences * max_length tokens, no sequence longer than max_length (at
  // most the model's seq_len). The model must outlive this object. kTraining needs a trainable
  // model. `recompute` goes with kTraining only: the same gradients, bit for bit, in less memory
  // and more time.
  Activations(const Model& model, int64_t max_sequences, int64_t max_length, ModelUse use,
              bool recompute = false);

  // The memory that the constructor would take; `stage` as for Model.
  static size_t Bytes(const ModelConfig& config, DType compute, int64_t max_sequences,
                      int64_t max_length, ModelUse use, bool recompute = false,
                      const Stage* stage = nullptr);
  // The memory that it took.
  size_t bytes() const { return arena_->peak(); }

  // Shapes every tensor for a batch; cheap, and does not allocate.
  void SetShape(int64_t sequences, int64_t length);

  bool training() const { return use_ == ModelUse::kTraining; }
  // Whether all blocks share one set in training, so that the backward pass finds there only the
  // last one that was computed.
  bool recompute() const { return recompute_; }
  int64_t sequences() const { return sequences_; }
  int64_t length() const { return length_; }
  int64_t rows() const { return sequences_ * length_; }
  int64_t max_rows() const { return max_rows_; }

  // Of a block of the model's stage.
  BlockActivations& block(int i) {
    return blocks_[blocks_.size() > 1 ? i - stage_.blocks.first : 0];
  }
  const Tensor& y(int i) const { return y_[i]; }  // 0..d
  // Y of a stream: 0 is the residual stream.
  const Tensor& y(int i, int stream) const {
    return stream == 0 ? y_[i] : y_streams_[i][stream - 1];
  }
  // Streams of depth i: 1 where it has no module.
  int streams(int i) const {
    return pattern_.has_module(i) ? mixer_.stream_count(i, config_.n_layer) : 1;
  }
  const Tensor& x(int i) const { return x_[i]; }  // where block i leaves X_i, fp32
  const Tensor& history(int i) const { return history_[i]; }
  std::span<const Tensor> history() const { return history_; }
  // dY_i: takes the place of Y_i where depth i has a module. It is written at the end of the
  // backward pass of block i + 1, which is the last to read Y_i (to recompute the block, too).
  std::span<const Tensor> dy() const { return dy_; }
  const Tensor& dy(int i, int stream) const {
    return stream == 0 ? dy_[i] : y_streams_[i][stream - 1];
  }
  // dY_i of the modules i whose pairs with X_j belong to the stage (stage.h), [d + 1]; of modules
  // after it, where it comes back from the next stage.
  std::span<const Tensor> dy_of(int j) const { return stage_.whole() ? dy_ : dy_of_[j]; }

  // Of a stage of a pipeline. The partial sum of module i [N, D] fp32 that crosses one of its cuts,
  // or both; in the backward pass dY_i as it comes back.
  const Tensor& sum(int i) const { return sums_[i]; }
  // The gradient of a source X_j [N, D] fp32 that crosses one of its cuts, or both.
  const Tensor& dsource(int j) const { return dsources_[j]; }

  // Of mixers that are not plain (mixer.h).
  MixerActivations& mix(int i) { return mixers_[mixers_.size() > 1 ? i : 0]; }
  const Tensor& dhistory(int j) const { return dhistory_[j]; }
  Tensor qkv_part;                       // [N, 2D] compute: one part of qkv or its gradient
  std::vector<Tensor> source_rstd;       // [d + 1] of [N]: 1 / rms of a source
  Tensor dweights, dweights_compute;     // [N, C n]: fp32 and compute
  Tensor dhidden;                        // [N, C n] compute
  Tensor dgate;                          // [N, C]
  Tensor mixer_sums;                     // sums over fixed partitions of the rows
  std::vector<uint8_t> dhistory_filled;  // [d + 1]: whether dhistory(j) holds anything yet

  Tensor ln_f, ln_f_mean, ln_f_rstd;  // [N, D] compute, [N], [N]
  Tensor delta;               // [N, D] compute: what a branch adds to the stream; its gradient
  Tensor dx;                  // [N, D] fp32: gradient of the stream
  Tensor dfc, dqkv;           // [N, 4D], [B, T, 3D] compute, in the same place
  Tensor dnorm;               // [N, D] compute: gradients of LayerNorm outputs and attention
  Tensor scratch;             // fp32, for reductions
  Tensor rotary;              // [max_length, head_size]
  Tensor logits, dlogits;     // [chunk, V]: fp32, compute
  std::vector<float> losses;  // [max rows]
  // Sum of the squares of the gradients of the blocks' matrices, as the last backward pass left
  // them (gradient_norm.h).
  double matrix_squares = 0;
  std::vector<const float*> alphas;  // [d + 1]
  std::vector<float*> dalphas;       // [d + 1]; null where there is no module
  DepthAverager& averager() { return *averager_; }

 private:
  Activations(const ModelConfig& config, DType compute, int64_t max_sequences, int64_t max_length,
              ModelUse use, bool recompute, const Stage& stage, std::unique_ptr<Arena> arena);
  void LayOut();
  void LayOutDepth();
  void LayOutCuts();
  void LayOutHead();
  void LayOutMixedDepth();
  void LayOutMixers();
  void LayOutBlock(BlockActivations& block);
  Tensor Rows(DType dtype, int64_t width);

  ModelConfig config_;
  DepthPattern pattern_;
  MixerSpec mixer_;
  Stage stage_;
  DType compute_;
  ModelUse use_;
  bool recompute_;
  int64_t max_rows_, max_length_;
  int64_t sequences_, length_;
  std::unique_ptr<Arena> arena_;
  std::optional<DepthAverager> averager_;
  size_t fixed_ = 0;  // bytes of the arena that do not depend on the batch
  std::vector<BlockActivations> blocks_;
  std::vector<Tensor> y_, x_, history_, dy_;
  std::vector<std::array<Tensor, kMostStreams - 1>> y_streams_;
  std::vector<MixerActivations> mixers_;  // [d + 1], or one for all
  std::vector<Tensor> dhistory_;          // [d + 1] fp32: gradient of the history
  // Of a stage: [d + 1], empty where there is nothing.
  std::vector<Tensor> sums_, dsources_;
  std::vector<std::vector<Tensor>> dy_of_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_ACTIVATIONS_H_
