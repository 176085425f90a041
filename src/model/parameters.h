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
//   dwa_modules.alphas.{i}.weight [C, n]       i = block - 1, C streams, oldest source first
// and, of mixers that are not static (model/mixer_spec.h):
//   dwa_modules.mixers.{i}.w1.weight [C n, D]      w2.weight [C n, C n]       dynamic
//   dwa_modules.mixers.{i}.post.weight [C, D]                                 dynamic, prepost
//   dwa_modules.mixers.{i}.query [C, D]            gate [C]                   attention, attnres
//   transformer.h.{i}.ln_k.weight [D]              ln_v.weight [D]            streams of their own
#ifndef DENSEFORMER_MODEL_PARAMETERS_H_
#define DENSEFORMER_MODEL_PARAMETERS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "denseformer/config.h"
#include "denseformer/depth_pattern.h"
#include "tensor/tensor.h"

namespace denseformer {

enum class ParameterGroup { kEmbedding, kAttention, kMlp, kNorm, kDwa, kGain, kBias, kMixer };
const char* ParameterGroupName(ParameterGroup group);
inline constexpr int kParameterGroups = 8;

enum class Initializer {
  kNormal,    // N(0, deviation)
  kOnes,      //
  kZeros,     //
  kIdentity,  // 0, and 1 for the last element of each row: an average that passes X_i on
  kConstant,  // value
};

struct Parameter {
  std::string name;
  Shape shape;
  ParameterGroup group;
  int block;  // 1..d, 0 for what belongs to no block
  Initializer initializer;
  float deviation;  // of kNormal; the value of kConstant
  bool decay;       // weight decay by the recipe of the paper
  int64_t offset;   // of the first element in the buffer of all parameters
  // Rows of the packed copies that GEMMs read, one after the other; empty: no GEMM reads it.
  std::vector<int64_t> packed_rows;
  // Whether its gradient counts in the norm: a parameter of several stages does on the first.
  bool counted = true;

  int64_t count() const { return shape.count(); }
  // Whether it decides the weights of a depth-weighted average.
  bool mixes() const { return group == ParameterGroup::kDwa || group == ParameterGroup::kMixer; }
  // Whether GEMMs read it.
  bool matrix() const { return !packed_rows.empty(); }
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
  Tensor ln_k_weight, ln_k_bias;          // where k or v has a stream of its own
  Tensor ln_v_weight, ln_v_bias;
};

// Of the module after block i, n sources and C streams; model/mixer.h has the formulas.
struct MixerTensors {
  Tensor w1;     // [C n, D]
  Tensor w2;     // [C n, C n]
  Tensor post;   // [C, D]
  Tensor query;  // [C, D]
  Tensor gate;   // [C]
};

struct ModelTensors {
  Tensor wte;  // [V, D]
  std::vector<BlockTensors> blocks;
  Tensor ln_f_weight, ln_f_bias;
  std::vector<Tensor> alphas;        // [d + 1], of the module after block i; [C, n]
  std::vector<MixerTensors> mixers;  // [d + 1]
};

struct Stage;

class ParameterTable {
 public:
  // Rows of the whole model.
  ParameterTable(const ModelConfig& config, const DepthPattern& pattern);
  // Rows that a stage of a pipeline holds: its blocks, the weights of all averages, the embedding
  // on the first and the last stage (on the last one as the head's matrix), the final norm on the
  // last.
  ParameterTable(const ModelConfig& config, const DepthPattern& pattern, const Stage& stage);

  std::span<const Parameter> all() const { return parameters_; }
  int64_t count() const { return count_; }              // parameters of the model
  int64_t count(ParameterGroup group) const;            //
  int64_t buffer_size() const { return buffer_size_; }  // elements, with alignment between tensors
  const Parameter* Find(std::string_view name) const;   // null where there is none
  // The first packed copy of the matrix that begins at `offset`, among those of the table.
  int PackedAt(int64_t offset) const;

  // Views into a buffer of buffer_size() floats.
  ModelTensors Bind(float* buffer) const;
  // The same with views that `place` makes.
  using Placement = FunctionRef<Tensor(const Parameter& parameter)>;
  ModelTensors Bind(Placement place) const;
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
