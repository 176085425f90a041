// What the benchmarks of whole passes share: shapes, models with random weights, and their memory.
#ifndef DENSEFORMER_PERF_MODEL_BENCH_H_
#define DENSEFORMER_PERF_MODEL_BENCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "denseformer/config.h"
#include "model/batch.h"
#include "model/model.h"
#include "perf/benchmark.h"
#include "tensor/dtype.h"

namespace denseformer {

struct BenchShape {
  int blocks = 0;
  int64_t batch = 0;  // sequences
};

struct ModelBenchOptions {
  ModelConfig config;
  std::vector<BenchShape> shapes;     // measured one after another
  std::vector<std::string> patterns;  // the first is the baseline
  DType compute = DType::kBF16;
  WeightFormat format = WeightFormat::kBF16;  // of frozen models
  bool frozen = false;                        // without fp32 masters (model/model.h)
  int64_t length = 256;
  bool recompute = false;  // training only: also every pattern with recomputation of activations
  InterleaveOptions interleave;
};

// Throws kUsage for what cannot be parsed, and for patterns that do not fit a depth.
ModelBenchOptions ParseModelOptions(const BenchOptions& options);

// `base` with another depth and pattern: "4x5", or "4x5+dynamic+rv" with a mixer, streams and norm
// of its own. Throws kUsage where there are more parts.
ModelConfig WithPattern(const ModelConfig& base, int depth, const std::string& pattern);

// A model with weights as large as the recipe's and averages over all depths: a kernel may be
// faster on zeros.
Model RandomModel(const ModelConfig& config, DType compute, ModelUse use);

// The same for inference alone; never in fp32 all at once.
Model FrozenRandomModel(const ModelConfig& config, WeightFormat format);

// Random tokens: the time does not depend on them.
struct RandomBatch {
  RandomBatch(const ModelConfig& config, int64_t sequences, int64_t length);
  std::vector<int32_t> tokens, targets;
  Batch batch;
};

// Throws where the machine has less memory free than all variants of the largest shape take: they
// are in memory at the same time, each with its own weights; moments are shared.
void RequireBenchMemory(const ModelBenchOptions& options, ModelUse use);

}  // namespace denseformer

#endif  // DENSEFORMER_PERF_MODEL_BENCH_H_
