#include "train/gemm_rate.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "model/gemm_limit.h"

namespace denseformer {
namespace {

// All blocks have the same GEMMs, so a few of them, in the proportion of their operations to the
// head's, say enough.
constexpr int kBlocks = 4;
constexpr int64_t kRows = 4096;
constexpr double kSeconds = 0.05;

}  // namespace

GemmRate MeasureGemmRate(const ModelConfig& config, DType compute, int64_t rows) {
  using Clock = std::chrono::steady_clock;
  ModelConfig part = config;
  part.n_layer = std::min(config.n_layer, kBlocks);
  part.dwa = "none";
  rows = std::min(rows, kRows);
  GemmLimit limit(part, compute, rows, ModelUse::kTraining);
  const auto run = [&limit] {
    const Clock::time_point begin = Clock::now();
    limit.Forward();
    limit.Backward();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  run();  // makes the primitives
  double best = std::numeric_limits<double>::infinity(), total = 0;
  while (total < kSeconds) {
    const double seconds = run();
    best = std::min(best, seconds);
    total += seconds;
  }
  const double part_flops = limit.forward_flops();
  const double block_flops = 2.0 * 12 * config.n_embd * config.n_embd * static_cast<double>(rows);
  const double flops = part_flops + (config.n_layer - part.n_layer) * block_flops;
  return {best * flops / part_flops / static_cast<double>(rows)};
}

}  // namespace denseformer
