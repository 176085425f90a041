// A model: configuration, weights, gradients, and the weights in the form that the kernels read.
// The forward pass is in forward.cc, the backward pass in backward.cc.
#ifndef DENSEFORMER_MODEL_MODEL_H_
#define DENSEFORMER_MODEL_MODEL_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "denseformer/config.h"
#include "denseformer/depth_pattern.h"
#include "kernels/gemm/gemm.h"
#include "model/mixer_spec.h"
#include "model/parameters.h"
#include "model/stage.h"
#include "tensor/storage.h"
#include "tensor/weight_format.h"

namespace denseformer {

enum class ModelUse { kInference, kTraining };

// What a backward pass does with Model::gradients().
enum class Gradients { kReplace, kAdd };

// Linear layers of one block, packed for GEMM.
struct PackedBlock {
  // One for q, k and v together, or one for each input that they read (qkv.h).
  std::vector<const PackedWeight*> qkv_parts;
  const PackedWeight &proj, &fc, &mlp_proj;

  const PackedWeight& qkv() const {
    DF_CHECK(qkv_parts.size() == 1);
    return *qkv_parts[0];
  }
};

class Model {
 public:
  // Validates the configuration. Weights are zero until Initialize or a checkpoint fills them.
  // `compute` is the type that GEMMs read; master weights, sums and the residual stream are always
  // fp32. Gradients exist with kTraining only.
  // `stage`: the part of a pipeline (stage.h) whose parameters this object has; null: all of them.
  Model(const ModelConfig& config, DType compute, ModelUse use, const Stage* stage = nullptr);
  // A frozen model: for forward passes only. It holds its matrices once, as GEMMs read them, and no
  // fp32 masters; a token's logits have the same bits whatever else is in the batch. Weights are
  // zero until Fill.
  Model(const ModelConfig& config, WeightFormat format);
  Model(Model&&) = default;

  // Gives rows [first, first + count) of a parameter: values [count, cols] in fp32. True where the
  // file holds them quantized and the scale of each row was given as well (scales [count]). Called
  // from several threads.
  using RowSource = FunctionRef<bool(const Parameter& parameter, int64_t first, int64_t count,
                                     float* values, float* scales)>;
  // Fills a frozen model, a few rows at a time; `done` is called after each parameter.
  void Fill(RowSource source, FunctionRef<void(const Parameter& parameter)> done);
  // A frozen model with the weights of this one, which has masters.
  Model Frozen(WeightFormat format) const;
  // Bytes of the matrices of a frozen model, and of everything else that it keeps in fp32.
  static size_t FrozenMatrixBytes(const ParameterTable& table, WeightFormat format);
  static size_t FrozenVectorBytes(const ParameterTable& table);

  const ModelConfig& config() const { return config_; }
  const DepthPattern& pattern() const { return pattern_; }
  const MixerSpec& mixer() const { return mixer_; }
  const Stage& stage() const { return stage_; }
  const ParameterTable& table() const { return table_; }
  DType compute() const { return compute_; }
  bool trainable() const { return use_ == ModelUse::kTraining; }
  bool frozen() const { return frozen_; }
  WeightFormat format() const { return format_; }

  // All parameters, contiguous: table().buffer_size() floats; the padding between tensors is 0. Not
  // of a frozen model.
  std::span<float> weights() const;
  std::span<float> gradients() const;
  // The same by name. Matrices of a frozen model are keys for Packed() without elements.
  const ModelTensors& tensors() const { return tensors_; }
  const ModelTensors& gradient_tensors() const { return gradient_tensors_; }

  // Initial weights from a seed (parameters.h).
  void Initialize(uint64_t seed);

  // To be called after every change of weights(): refreshes the packed copies.
  void WeightsChanged();
  // The same for the matrices among the elements [begin, end) of weights().
  void WeightsChanged(int64_t begin, int64_t end);

  // Changes the weights and the packed copies in one pass over the memory: calls change(parameter,
  // begin, end), from several threads, for ranges of elements of weights() that together are all
  // parameters.
  using WeightChange = FunctionRef<void(const Parameter& parameter, int64_t begin, int64_t end)>;
  void ChangeWeights(WeightChange change);

  // Of a block of the stage.
  const PackedBlock& packed(int block) const { return packed_[block - stage_.blocks.first]; }
  const PackedWeight& packed_head() const { return Packed(tensors_.wte); }
  // The packed copy of a weight matrix among tensors(), the `part`-th where it has several.
  const PackedWeight& Packed(const Tensor& weight, int part = 0) const;

 private:
  void BindBlocks();  // packed_, from tensors_

  ModelConfig config_;
  DepthPattern pattern_;
  MixerSpec mixer_;
  Stage stage_;
  ParameterTable table_;
  DType compute_;
  WeightFormat format_;
  bool frozen_ = false;
  ModelUse use_;
  Storage weights_, gradients_;  // frozen: the vectors, then the packed matrices
  ModelTensors tensors_, gradient_tensors_;
  std::vector<PackedWeight> matrices_;  // packed copies of the table's matrices, in its order
  std::vector<PackedBlock> packed_;     // [blocks of the stage], of matrices_
};

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_MODEL_H_
