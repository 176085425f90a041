// Benchmarks of whole passes: forward as in the paper (batches/s), training step, decoding.
#ifndef DENSEFORMER_PERF_MODEL_BENCH_H_
#define DENSEFORMER_PERF_MODEL_BENCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "denseformer/config.h"
#include "perf/bench_table.h"
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
  int64_t length = 256;
  bool recompute = false;  // training only: also every pattern with recomputation of activations
  InterleaveOptions interleave;
};

// For each shape the products alone (GemmLimit) and every pattern, in the same rounds. Shapes are
// not compared with each other, so they need not be in memory together.
BenchTable BenchForward(const ModelBenchOptions& options);

// Forward, backward, AdamW and the renewal of the packed weights. A row with recomputation has the
// same pattern without it as its baseline.
BenchTable BenchTrain(const ModelBenchOptions& options);

// One token of one sequence at `length` cached tokens, against reading the packed weights once, at
// the depth of the first shape.
BenchTable BenchDecode(const ModelBenchOptions& options);

}  // namespace denseformer

#endif  // DENSEFORMER_PERF_MODEL_BENCH_H_
