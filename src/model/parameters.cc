#include "model/parameters.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "base/random.h"
#include "model/mixer_spec.h"
#include "model/stage.h"

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
  std::vector<int64_t> packed_rows = {};
};

// Rows of the packed copies of block i's qkv matrix: one for each input that its parts read.
std::vector<int64_t> QkvRows(const ModelConfig& config, const MixerSpec& mixer,
                             const DepthPattern& pattern, int block) {
  const int64_t D = config.n_embd;
  if (!pattern.has_module(block - 1)) return {3 * D};
  switch (mixer.streams.size()) {
    case 2:
      return {2 * D, D};  // q and k read the residual stream
    case 4:
      return {D, D, D};
    default:
      return {3 * D};
  }
}

// The walk over all parameters: visit(tensor, spec).
template <class Visitor>
void VisitParameters(const ModelConfig& config, const DepthPattern& pattern, ModelTensors& m,
                     Visitor&& visit) {
  const MixerSpec mixer = ParseMixer(config);
  const int64_t D = config.n_embd, V = config.vocab_size;
  const float out_deviation = kDeviation / std::sqrt(2.0f * static_cast<float>(config.n_layer));

  auto norm = [&](Tensor& weight, Tensor& bias, const std::string& name, int block) {
    visit(weight, Spec{name + ".weight", {D}, ParameterGroup::kNorm, block, Initializer::kOnes});
    if (config.bias) {
      visit(bias, Spec{name + ".bias", {D}, ParameterGroup::kBias, block, Initializer::kZeros});
    }
  };
  auto linear = [&](Tensor& weight, Tensor& bias, const std::string& name, int block, Shape shape,
                    ParameterGroup group, float deviation, std::vector<int64_t> rows = {}) {
    if (rows.empty()) rows = {shape[0]};
    visit(weight,
          Spec{name + ".weight", shape, group, block, Initializer::kNormal, deviation, rows});
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
                    kDeviation,
                    {V}});
  m.blocks.resize(config.n_layer);
  for (int i = 0; i < config.n_layer; ++i) {
    BlockTensors& b = m.blocks[i];
    const std::string prefix = "transformer.h." + std::to_string(i) + ".";
    const int block = i + 1;
    norm(b.ln_1_weight, b.ln_1_bias, prefix + "ln_1", block);
    linear(b.qkv_weight, b.qkv_bias, prefix + "attn.c_attn", block, {3 * D, D},
           ParameterGroup::kAttention, kDeviation, QkvRows(config, mixer, pattern, block));
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
    // With streams of their own, q keeps ln_1 and k and v get norms like it.
    if (mixer.streams.size() > 1 && pattern.has_module(i)) {
      if (mixer.streams.size() > 2) norm(b.ln_k_weight, b.ln_k_bias, prefix + "ln_k", block);
      norm(b.ln_v_weight, b.ln_v_bias, prefix + "ln_v", block);
    }
  }
  norm(m.ln_f_weight, m.ln_f_bias, "transformer.ln_f", 0);
  m.alphas.resize(config.n_layer + 1);
  m.mixers.resize(config.n_layer + 1);
  for (int i = 1; i <= config.n_layer; ++i) {
    if (!pattern.has_module(i)) continue;
    const int64_t n = static_cast<int64_t>(pattern.sources(i).size());
    const int64_t C = mixer.stream_count(i, config.n_layer);
    const std::string name = "dwa_modules.mixers." + std::to_string(i - 1) + ".";
    MixerTensors& t = m.mixers[i];
    const auto row = [&](Tensor& tensor, const char* part, Shape shape, Initializer initializer,
                         float value = 0, std::vector<int64_t> rows = {}) {
      visit(tensor, Spec{name + part, shape, ParameterGroup::kMixer, i, initializer, value, rows});
    };
    const auto alphas = [&](ParameterGroup group, Initializer initializer) {
      visit(m.alphas[i], Spec{"dwa_modules.alphas." + std::to_string(i - 1) + ".weight",
                              {C, n},
                              group,
                              i,
                              initializer});
    };
    switch (mixer.kind()) {
      case MixerKind::kStatic:
        alphas(ParameterGroup::kDwa, Initializer::kIdentity);
        break;
      case MixerKind::kDynamic:
        alphas(ParameterGroup::kMixer,
               mixer.prepost ? Initializer::kZeros : Initializer::kIdentity);
        row(t.w1, "w1.weight", {C * n, D}, Initializer::kNormal,
            1.0f / std::sqrt(static_cast<float>(D)), {C * n});
        row(t.w2, "w2.weight", {C * n, C * n}, Initializer::kZeros, 0, {C * n});
        if (mixer.prepost) row(t.post, "post.weight", {C, D}, Initializer::kConstant, 1e-3f);
        break;
      case MixerKind::kAttention:
        row(t.query, "query", {C, D}, Initializer::kZeros);
        row(t.gate, "gate", {C}, Initializer::kZeros);
        break;
      case MixerKind::kAttnRes:
        row(t.query, "query", {C, D}, Initializer::kZeros);
        break;
    }
  }
}

// Whether several stages have it.
bool Shared(const Spec& spec) {
  return spec.group == ParameterGroup::kDwa || spec.group == ParameterGroup::kMixer ||
         spec.group == ParameterGroup::kEmbedding;
}

bool OnStage(const Spec& spec, const Stage& stage) {
  if (stage.whole()) return true;
  if (spec.group == ParameterGroup::kEmbedding) return stage.first() || stage.last();
  if (Shared(spec)) return true;
  return spec.block > 0 ? stage.blocks.contains(spec.block) : stage.last();
}

// By the authors' recipe every matrix but the tied embedding decays, and so do DWA weights and
// gains.
bool Decays(ParameterGroup group) {
  return group == ParameterGroup::kAttention || group == ParameterGroup::kMlp ||
         group == ParameterGroup::kDwa || group == ParameterGroup::kGain;
}

}  // namespace

const char* ParameterGroupName(ParameterGroup group) {
  static constexpr const char* kNames[kParameterGroups] = {
      "embedding", "attention", "mlp", "norm", "dwa", "gain", "bias", "mixer"};
  return kNames[static_cast<int>(group)];
}

ParameterTable::ParameterTable(const ModelConfig& config, const DepthPattern& pattern)
    : ParameterTable(config, pattern, WholeStage(config.n_layer)) {}

ParameterTable::ParameterTable(const ModelConfig& config, const DepthPattern& pattern,
                               const Stage& stage)
    : config_(config), pattern_(pattern) {
  ModelTensors unused;
  VisitParameters(config_, pattern_, unused, [this, &stage](Tensor&, const Spec& spec) {
    if (!OnStage(spec, stage)) return;
    const bool embeds_only = spec.group == ParameterGroup::kEmbedding && !stage.last();
    parameters_.push_back({spec.name, spec.shape, spec.group, spec.block, spec.initializer,
                           spec.deviation, Decays(spec.group), buffer_size_,
                           embeds_only ? std::vector<int64_t>() : spec.packed_rows,
                           stage.first() || !Shared(spec)});
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

int ParameterTable::PackedAt(int64_t offset) const {
  size_t index = 0;
  for (const Parameter& parameter : parameters_) {
    if (parameter.matrix() && parameter.offset == offset) return static_cast<int>(index);
    index += parameter.packed_rows.size();
  }
  DF_CHECK_MSG(false, "no matrix at offset {}", offset);
  return -1;
}

ModelTensors ParameterTable::Bind(float* buffer) const {
  return Bind([&](const Parameter& parameter) { return View(parameter, buffer); });
}

ModelTensors ParameterTable::Bind(Placement place) const {
  ModelTensors tensors;
  size_t next = 0;
  VisitParameters(config_, pattern_, tensors, [&](Tensor& tensor, const Spec& spec) {
    // A stage has some of the rows, in the same order.
    if (next == parameters_.size() || parameters_[next].name != spec.name) return;
    tensor = place(parameters_[next++]);
  });
  DF_CHECK(next == parameters_.size());
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
          for (int64_t i = parameter.shape[1]; i <= n; i += parameter.shape[1]) data[i - 1] = 1.0f;
          break;
        case Initializer::kConstant:
          std::fill_n(data, n, parameter.deviation);
          break;
      }
    }
  });
}

}  // namespace denseformer
