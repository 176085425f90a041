#include "model/summary.h"

#include <algorithm>

#include "denseformer/depth_pattern.h"
#include "kernels/gemm/gemm.h"
#include "model/activations.h"
#include "model/kv_cache.h"
#include "model/parameters.h"

namespace denseformer {
namespace {

constexpr int64_t kProgramBytes = int64_t{40} << 20;
// Without the GEMMs that oneDNN compiles.
constexpr int64_t kGenerationProgramBytes = int64_t{15} << 20;

// Packed copies of the matrices (model.h), and the scratch memory in which the largest of them is
// transposed.
int64_t CopyBytes(const ParameterTable& table, DType compute) {
  int64_t bytes = 0, transposed = 0;
  for (const Parameter& parameter : table.all()) {
    for (const int64_t out : parameter.packed_rows) {
      const int64_t in = parameter.shape[1];
      bytes += static_cast<int64_t>(PackedWeight::CopyBytes(out, in, compute));
      transposed = std::max(transposed,
                            static_cast<int64_t>(PackedWeight::TransposedBytes(out, in, compute)));
    }
  }
  return bytes + transposed;
}

// Of the fp32 masters of the blocks' matrices.
int64_t BlockMatrixBytes(const ParameterTable& table) {
  int64_t count = 0;
  for (const Parameter& p : table.all()) {
    if (p.matrix() && !p.mixes() && p.block > 0) count += p.count();
  }
  return count * static_cast<int64_t>(sizeof(float));
}

// Of a stage in one of `copies` processes that hold it.
MemoryUse PassMemory(const ModelConfig& config, DType compute, int64_t sequences, int64_t length,
                     bool recompute, const Stage& stage, int copies) {
  config.Validate();
  const ParameterTable table(config, DepthPattern::Parse(config.dwa, config.n_layer), stage);
  MemoryUse memory;
  memory.program = kProgramBytes;
  memory.weights = table.buffer_size() * static_cast<int64_t>(sizeof(float));
  memory.copies = CopyBytes(table, compute);
  memory.activations = static_cast<int64_t>(Activations::Bytes(
      config, compute, sequences, length, ModelUse::kTraining, recompute, &stage));
  memory.gradients = memory.weights;
  memory.moments = 2 * memory.weights / copies;
  if (compute == DType::kBF16) {
    const int64_t matrices = BlockMatrixBytes(table);
    memory.weights -= matrices - matrices / copies;
  }
  return memory;
}

}  // namespace

FlopsPerToken ForwardFlops(const ModelConfig& config, int64_t length) {
  config.Validate();
  const int64_t D = config.n_embd, V = config.vocab_size, d = config.n_layer;
  FlopsPerToken flops;
  flops.linear = d * 24 * D * D;
  flops.attention = d * 2 * D * (length + 1);
  flops.head = 2 * V * D;
  const DepthPattern pattern = DepthPattern::Parse(config.dwa, config.n_layer);
  const MixerSpec mixer = ParseMixer(config);
  for (int i = 1; i <= d; ++i) {
    const int64_t weights =
        mixer.stream_count(i, config.n_layer) * static_cast<int64_t>(pattern.sources(i).size());
    flops.dwa += 2 * D * weights;
    if (mixer.kind() == MixerKind::kDynamic) flops.dwa += 2 * weights * (D + weights);
    if (mixer.form->increments) flops.dwa += 2 * D * weights;
  }
  return flops;
}

int64_t RecomputeFlopsPerToken(const ModelConfig& config, int64_t length) {
  const int64_t D = config.n_embd;
  return (config.n_layer - 1) * (16 * D * D + 2 * D * (length + 1));
}

MemoryUse TrainingMemory(const ModelConfig& config, DType compute, int64_t sequences,
                         int64_t length, bool recompute, int ranks) {
  return PassMemory(config, compute, sequences, length, recompute, WholeStage(config.n_layer),
                    ranks);
}

MemoryUse StageMemory(const ModelConfig& config, DType compute, int64_t sequences, int64_t length,
                      bool recompute, const StageUse& use) {
  MemoryUse memory =
      PassMemory(config, compute, sequences, length, recompute, *use.stage, use.copies);
  memory.activations *= use.micro_batches;
  return memory;
}

MemoryUse InferenceMemory(const ModelConfig& config, WeightFormat format, int64_t sequences,
                          int64_t length) {
  config.Validate();
  const ParameterTable table(config, DepthPattern::Parse(config.dwa, config.n_layer));
  MemoryUse memory;
  memory.program = kProgramBytes;
  memory.weights = static_cast<int64_t>(Model::FrozenVectorBytes(table));
  memory.copies = static_cast<int64_t>(Model::FrozenMatrixBytes(table, format));
  memory.activations = static_cast<int64_t>(
      Activations::Bytes(config, ComputeOf(format), sequences, length, ModelUse::kInference));
  return memory;
}

MemoryUse GenerationMemory(const ModelConfig& config, WeightFormat format, int64_t rows,
                           int64_t sequences, int64_t length) {
  MemoryUse memory = InferenceMemory(config, format, rows, 1);
  memory.program = kGenerationProgramBytes;
  memory.cache = static_cast<int64_t>(
      KvPool::TakenBytes(config, ComputeOf(format), sequences * KvPagesFor(length)));
  // Each matrix is packed from the fp32 values of the file, mapped meanwhile; buffers of a step and
  // the cache come later.
  int64_t largest = 0;
  const ParameterTable table(config, DepthPattern::Parse(config.dwa, config.n_layer));
  for (const Parameter& parameter : table.all()) {
    largest = std::max(largest, parameter.count() * static_cast<int64_t>(sizeof(float)));
  }
  memory.loading = std::max<int64_t>(0, largest - memory.activations - memory.cache);
  return memory;
}

RecomputeEffect EffectOfRecompute(const ModelConfig& config, DType compute, int64_t sequences,
                                  int64_t length) {
  const auto bytes = [&](bool recompute) {
    return TrainingMemory(config, compute, sequences, length, recompute).total();
  };
  const double step = 3.0 * static_cast<double>(ForwardFlops(config, length).total());
  return {static_cast<double>(RecomputeFlopsPerToken(config, length)) / step,
          bytes(false) - bytes(true)};
}

}  // namespace denseformer
