#include "model/parameters.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "base/random.h"

namespace denseformer {
namespace {

constexpr int64_t kAlignedFloats = 16;
constexpr float kDeviation = 0.02f;

struct Spec {
  std::string name;
  Shape shape;
  ParameterGroup group;
  int block;
  Initializer initializer;
  float deviation = 0;
};

// The walk over all parameters: visit(tensor, spec).
template <class Visitor>
void VisitParameters(const ModelConfig& config, const DepthPattern& pattern, ModelTensors& m,
                     Visitor&& visit) {
  const int64_t D = config.n_embd, V = config.vocab_size;
  const float out_deviation = kDeviation / std::sqrt(2.0f * static_cast<float>(config.n_layer));

  auto norm = [&](Tensor& weight, Tensor& bias, const std::string& name, int block) {
    visit(weight, Spec{name + ".weight", {D}, ParameterGroup::kNorm, block, Initializer::kOnes});
    if (config.bias) {
      visit(bias, Spec{name + ".bias", {D}, ParameterGroup::kBias, block, Initializer::kZeros});
    }
  };
  auto linear = [&](Tensor& weight, Tensor& bias, const std::string& name, int block, Shape shape,
                    ParameterGroup group, float deviation) {
    visit(weight, Spec{name + ".weight", shape, group, block, Initializer::kNormal, deviation});
    if (config.bias) {
      visit(bias,
            Spec{name + ".bias", {shape[0]}, ParameterGroup::kBias, block, Initializer::kZeros});
    }
  };

  visit(m.wte, Spec{"transformer.wte.weight",
                    {V, D},
                    ParameterGroup::kEmbedding,
                    0,
                    Initializer::kNormal,
                    kDeviation});
  m.blocks.resize(config.n_layer);
  for (int i = 0; i < config.n_layer; ++i) {
    BlockTensors& b = m.blocks[i];
    const std::string prefix = "transformer.h." + std::to_string(i) + ".";
    const int block = i + 1;
    norm(b.ln_1_weight, b.ln_1_bias, prefix + "ln_1", block);
    linear(b.qkv_weight, b.qkv_bias, prefix + "attn.c_attn", block, {3 * D, D},
           ParameterGroup::kAttention, kDeviation);
    linear(b.proj_weight, b.proj_bias, prefix + "attn.c_proj", block, {D, D},
           ParameterGroup::kAttention, out_deviation);
    norm(b.ln_2_weight, b.ln_2_bias, prefix + "ln_2", block);
    linear(b.fc_weight, b.fc_bias, prefix + "mlp.c_fc", block, {4 * D, D}, ParameterGroup::kMlp,
           kDeviation);
    linear(b.mlp_proj_weight, b.mlp_proj_bias, prefix + "mlp.c_proj", block, {D, 4 * D},
           ParameterGroup::kMlp, out_deviation);
    if (config.gains) {
      visit(b.gain_attn,
            Spec{prefix + "gain_attn", {1}, ParameterGroup::kGain, block, Initializer::kOnes});
      visit(b.gain_mlp,
            Spec{prefix + "gain_mlp", {1}, ParameterGroup::kGain, block, Initializer::kOnes});
    }
  }
  norm(m.ln_f_weight, m.ln_f_bias, "transformer.ln_f", 0);
  m.alphas.resize(config.n_layer + 1);
  for (int i = 1; i <= config.n_layer; ++i) {
    if (!pattern.has_module(i)) continue;
    const int64_t n = static_cast<int64_t>(pattern.sources(i).size());
    visit(m.alphas[i], Spec{"dwa_modules.alphas." + std::to_string(i - 1) + ".weight",
                            {1, n},
                            ParameterGroup::kDwa,
                            i,
                            Initializer::kIdentity});
  }
}

// By the authors' recipe every matrix but the tied embedding decays, and so do DWA weights and
// gains.
bool Decays(ParameterGroup group) {
  return group == ParameterGroup::kAttention || group == ParameterGroup::kMlp ||
         group == ParameterGroup::kDwa || group == ParameterGroup::kGain;
}

}  // namespace

const char* ParameterGroupName(ParameterGroup group) {
  static constexpr const char* kNames[kParameterGroups] = {"embedding", "attention", "mlp", "norm",
                                                           "dwa",       "gain",      "bias"};
  return kNames[static_cast<int>(group)];
}

ParameterTable::ParameterTable(const ModelConfig& config, const DepthPattern& pattern)
    : config_(config), pattern_(pattern) {
  ModelTensors unused;
  VisitParameters(config_, pattern_, unused, [this](Tensor&, const Spec& spec) {
    parameters_.push_back({spec.name, spec.shape, spec.group, spec.block, spec.initializer,
                           spec.deviation, Decays(spec.group), buffer_size_});
    count_ += spec.shape.count();
    buffer_size_ += (spec.shape.count() + kAlignedFloats - 1) / kAlignedFloats * kAlignedFloats;
  });
}

int64_t ParameterTable::count(ParameterGroup group) const {
  int64_t sum = 0;
  for (const Parameter& parameter : parameters_) {
    if (parameter.group == group) sum += parameter.count();
  }
  return sum;
}

const Parameter* ParameterTable::Find(std::string_view name) const {
  const auto found =
      std::find_if(parameters_.begin(), parameters_.end(),
                   [&](const Parameter& parameter) { return parameter.name == name; });
  return found == parameters_.end() ? nullptr : &*found;
}

int ParameterTable::MatrixAt(int64_t offset) const {
  int index = 0;
  for (const Parameter& parameter : parameters_) {
    if (!parameter.matrix()) continue;
    if (parameter.offset == offset) return index;
    ++index;
  }
  DF_CHECK_MSG(false, "no matrix at offset {}", offset);
  return -1;
}

ModelTensors ParameterTable::Bind(float* buffer) const {
  ModelTensors tensors;
  size_t next = 0;
  VisitParameters(config_, pattern_, tensors,
                  [&](Tensor& tensor, const Spec&) { tensor = View(parameters_[next++], buffer); });
  return tensors;
}

void ParameterTable::Initialize(uint64_t seed, float* buffer) const {
  ParallelFor(static_cast<int64_t>(parameters_.size()), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t p = begin; p < end; ++p) {
      const Parameter& parameter = parameters_[p];
      float* data = buffer + parameter.offset;
      const int64_t n = parameter.count();
      switch (parameter.initializer) {
        case Initializer::kNormal: {
          Random random(seed, HashName(parameter.name));
          for (int64_t i = 0; i < n; ++i) data[i] = parameter.deviation * random.Normal();
          break;
        }
        case Initializer::kOnes:
          std::fill_n(data, n, 1.0f);
          break;
        case Initializer::kZeros:
          std::fill_n(data, n, 0.0f);
          break;
        case Initializer::kIdentity:
          std::fill_n(data, n, 0.0f);
          data[n - 1] = 1.0f;
          break;
      }
    }
  });
}

}  // namespace denseformer
