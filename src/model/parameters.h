// The parameter table: name, shape, initializer and weight decay of every parameter, in one place.
//
// VisitParameters walks the tensors of a model in a fixed order. Allocation, initialization,
// optimizer, checkpoints, communication and analysis all follow this walk. Names are those of the
// authors' code and package, so that checkpoints carry over:
//   transformer.wte.weight [V, D]              embedding and head
//   transformer.h.{i}.ln_1.weight [D]          i = block - 1
//   transformer.h.{i}.attn.c_attn.weight [3D, D]   attn.c_proj.weight [D, D]
//   transformer.h.{i}.ln_2.weight [D]
//   transformer.h.{i}.mlp.c_fc.weight [4D, D]      mlp.c_proj.weight [D, 4D]
//   transformer.h.{i}.gain_attn [1]            gain_mlp [1]      (with gains)
//   transformer.ln_f.weight [D]                ... .bias beside each weight (with bias)
//   dwa_modules.alphas.{i}.weight [1, n]       i = block - 1, oldest source first
#ifndef DENSEFORMER_MODEL_PARAMETERS_H_
#define DENSEFORMER_MODEL_PARAMETERS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "denseformer/config.h"
#include "denseformer/depth_pattern.h"
#include "tensor/tensor.h"

namespace denseformer {

enum class ParameterGroup { kEmbedding, kAttention, kMlp, kNorm, kDwa, kGain, kBias };
const char* ParameterGroupName(ParameterGroup group);
inline constexpr int kParameterGroups = 7;

enum class Initializer {
  kNormal,    // N(0, deviation)
  kOnes,      //
  kZeros,     //
  kIdentity,  // 0, and 1 for the last element: a depth-weighted average that passes X_i on
};

struct Parameter {
  std::string name;
  Shape shape;
  ParameterGroup group;
  int block;  // 1..d, 0 for what belongs to no block
  Initializer initializer;
  float deviation;  // for kNormal
  bool decay;       // weight decay by the recipe of the paper
  int64_t offset;   // of the first element in the buffer of all parameters

  int64_t count() const { return shape.count(); }
  // Whether GEMMs read it.
  bool matrix() const {
    return group == ParameterGroup::kEmbedding || group == ParameterGroup::kAttention ||
           group == ParameterGroup::kMlp;
  }
};

// Views of all tensors of a model in one buffer: weights, gradients or a moment of the optimizer.
// Tensors of parts that the model does not have are empty.
struct BlockTensors {
  Tensor ln_1_weight, ln_1_bias;
  Tensor qkv_weight, qkv_bias;    // [3D, D], [3D]
  Tensor proj_weight, proj_bias;  // [D, D], [D]
  Tensor ln_2_weight, ln_2_bias;
  Tensor fc_weight, fc_bias;              // [4D, D], [4D]
  Tensor mlp_proj_weight, mlp_proj_bias;  // [D, 4D], [D]
  Tensor gain_attn, gain_mlp;             // [1]
};

struct ModelTensors {
  Tensor wte;  // [V, D]
  std::vector<BlockTensors> blocks;
  Tensor ln_f_weight, ln_f_bias;
  std::vector<Tensor> alphas;  // [d + 1], of the module after block i; [1, n]
};

class ParameterTable {
 public:
  ParameterTable(const ModelConfig& config, const DepthPattern& pattern);

  std::span<const Parameter> all() const { return parameters_; }
  int64_t count() const { return count_; }              // parameters of the model
  int64_t count(ParameterGroup group) const;            //
  int64_t buffer_size() const { return buffer_size_; }  // elements, with alignment between tensors
  const Parameter* Find(std::string_view name) const;   // null where there is none
  // The place of the matrix that begins at `offset` among the matrices of the table.
  int MatrixAt(int64_t offset) const;

  // Views into a buffer of buffer_size() floats.
  ModelTensors Bind(float* buffer) const;
  // The view of one parameter.
  static Tensor View(const Parameter& parameter, float* buffer) {
    return Tensor(buffer + parameter.offset, parameter.shape);
  }

  // Initial weights: the numbers of a parameter depend on the seed and its name only, so that
  // models that differ in their depth pattern start from the same Transformer.
  void Initialize(uint64_t seed, float* buffer) const;

 private:
  ModelConfig config_;
  DepthPattern pattern_;
  std::vector<Parameter> parameters_;
  int64_t count_ = 0, buffer_size_ = 0;
};

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_PARAMETERS_H_
