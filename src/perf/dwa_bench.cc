// All depth-weighted averages of a pass, forward and backward with all gradients, for each pattern:
// against a loop of axpys over fp32 outputs, and against only reading every source once per module.
#include <memory>

#include "base/error.h"
#include "base/parallel.h"
#include "base/random.h"
#include "base/text.h"
#include "denseformer/depth_pattern.h"
#include "kernels/dwa/dwa.h"
#include "perf/kernel_bench.h"
#include "perf/memory_limit.h"

namespace denseformer {
namespace {

// What the averages of one model work on, as in training.
struct DwaVariant {
  DwaVariant(const DepthPattern& pattern_, const KernelBenchOptions& options)
      : pattern(pattern_), rows(options.rows), cols(options.config.n_embd), dtype(options.compute) {
    const int depth = pattern.depth();
    Arena measure;
    Plan(measure);
    arena = std::make_unique<Arena>(measure.used());
    averager = std::make_unique<DepthAverager>(Plan(*arena));
    Random random(/*key=*/1);
    alpha_values.resize(static_cast<size_t>(pattern.weight_count()));
    dalpha_values.resize(alpha_values.size());
    for (float& alpha : alpha_values) alpha = 0.1f * random.Normal();
    alphas.resize(depth + 1);
    dalphas.resize(depth + 1);
    size_t next = 0;
    for (int i = 1; i <= depth; ++i) {
      if (!pattern.has_module(i)) continue;
      alphas[i] = alpha_values.data() + next;
      dalphas[i] = dalpha_values.data() + next;
      next += pattern.sources(i).size();
    }
  }

  DepthAverager Plan(Arena& to) {
    const int depth = pattern.depth();
    DepthAverager made(pattern, rows, cols, to);
    history.resize(depth + 1);
    dy.resize(depth + 1);
    for (int i = 0; i <= depth; ++i) {
      if (!pattern.readers(i).empty()) history[i] = to.Allocate(dtype, {rows, cols});
      if (pattern.has_module(i)) dy[i] = to.Allocate(DType::kF32, {rows, cols});
    }
    newest = to.Allocate(DType::kF32, {rows, cols});
    y = to.Allocate(DType::kF32, {rows, cols});
    return made;
  }

  void Forward() {
    averager->StartForward(alphas);
    for (int i = 1; i <= pattern.depth(); ++i) {
      if (pattern.has_module(i)) averager->Forward(i, newest, history, y);
    }
  }
  // Reads what every module reads, and does nothing with it.
  void Read() {
    for (int i = 1; i <= pattern.depth(); ++i) {
      for (const int j : pattern.sources(i)) {
        const Tensor& source = j < i ? history[j] : newest;
        ReadBytes({static_cast<const std::byte*>(source.raw()), source.bytes()});
      }
    }
  }
  void Backward() {
    for (int i = pattern.depth(); i >= 0; --i)
      averager->Backward(i, history, dy, alphas, dalphas, newest);
  }

  DepthPattern pattern;
  int64_t rows, cols;
  DType dtype;
  std::unique_ptr<Arena> arena;
  std::unique_ptr<DepthAverager> averager;
  std::vector<Tensor> history, dy;
  Tensor newest, y;
  std::vector<float> alpha_values, dalpha_values;
  std::vector<const float*> alphas;
  std::vector<float*> dalphas;
};

// y += alpha x for each source: reads and writes the sum once per source.
void NaiveForward(const DepthPattern& pattern, const Tensor& source, const Tensor& sum) {
  const float* x = source.f32();
  float* y = sum.f32();
  for (int i = 1; i <= pattern.depth(); ++i) {
    for (size_t s = 0; s < pattern.sources(i).size(); ++s) {
      ParallelFor(sum.count(), 1 << 14, [&](int64_t begin, int64_t end, int) {
        for (int64_t k = begin; k < end; ++k) y[k] += 0.1f * x[k];
      });
    }
  }
}

}  // namespace

BenchTable BenchDwa(const BenchOptions& bench_options) {
  const KernelBenchOptions options = ParseKernelOptions(bench_options);
  std::vector<std::unique_ptr<DwaVariant>> dwas;
  std::vector<Variant> variants;
  std::vector<double> sources;
  Arena arena(static_cast<size_t>(options.rows * options.config.n_embd) * 8 + 256);
  const Tensor source = arena.Allocate(DType::kF32, {options.rows, options.config.n_embd});
  const Tensor sum = arena.Allocate(DType::kF32, {options.rows, options.config.n_embd});
  constexpr int kRows = 4;  // per pattern: axpys, reading, forward, backward
  for (const std::string& spec : options.patterns) {
    const DepthPattern pattern = DepthPattern::Parse(spec, options.config.n_layer);
    if (pattern.module_count() == 0) continue;
    dwas.push_back(std::make_unique<DwaVariant>(pattern, options));
    DwaVariant* dwa = dwas.back().get();
    variants.push_back({spec + " naive loop", [=] { NaiveForward(dwa->pattern, source, sum); }});
    variants.push_back({spec + " reading alone", [=] { dwa->Read(); }});
    variants.push_back({spec + " forward", [=] { dwa->Forward(); }});
    variants.push_back({spec + " backward", [=] { dwa->Backward(); }});
    sources.insert(sources.end(), kRows, static_cast<double>(pattern.weight_count()));
  }
  if (variants.empty()) {
    Throw(ErrorCode::kUsage,
          "bench dwa: none of the patterns '{}' has an average; take others (--dwa)",
          Join(options.patterns, ","));
  }
  BenchTable table = MakeTable("depth-weighted averages of a pass",
                               Interleave(variants, options.interleave), 0, "source elements");
  for (size_t r = 0; r < table.rows.size(); ++r) {
    BenchRow& row = table.rows[r];
    const int first = static_cast<int>(r) / kRows * kRows, at = static_cast<int>(r) % kRows;
    row.work = sources[r] * static_cast<double>(options.rows * options.config.n_embd);
    if (at > 0) row.baseline = first;
    if (at > 1) row.limit = first + 1;
  }
  table.settings = {{"depth", std::to_string(options.config.n_layer)},
                    {"tokens", std::to_string(options.rows)},
                    {"width", std::to_string(options.config.n_embd)},
                    {"history", DTypeName(options.compute)},
                    {"threads", std::to_string(NumThreads())}};
  return table;
}

}  // namespace denseformer
