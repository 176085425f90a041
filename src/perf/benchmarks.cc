// The table of benchmarks.
#include "perf/benchmark.h"

// name, run function, options, help
#define DF_BENCHMARKS(ROW)                                                                         \
  ROW("forward", BenchForward, kWholePass | kBenchFrozen | kBenchInt8,                             \
      "Forward pass as in the paper: batches/s, and the share of the GEMM rate that it keeps")     \
  ROW("train", BenchTrain, kWholePass | kBenchRecompute,                                           \
      "Training step: forward, backward, gradient norm, AdamW")                                    \
  ROW("decode", BenchDecode, kInference | kBenchSteps,                                             \
      "One token of each of several sequences, against reading weights, keys and values once")     \
  ROW("prefill", BenchPrefill, kInference,                                                         \
      "The prompt of one sequence, against the GEMMs of its blocks")                               \
  ROW("load", BenchLoad, kBenchPreset | kBenchPrecision | kBenchInt8,                              \
      "Loading a model for inference, against reading its file once")                              \
  ROW("dwa", BenchDwa, kKernel | kBenchPatterns,                                                   \
      "The depth-weighted averages of a pass, against a loop of axpys and against reading")        \
  ROW("attention", BenchAttention, kKernel, "Attention of a block, against the block's GEMMs")     \
  ROW("decode-attention", BenchDecodeAttention, kBenchPreset | kBenchLength | kBenchPrecision,     \
      "Attention of one token to cached ones, against reading keys and values once")               \
  ROW("gemm", BenchGemm, kKernel, "The GEMMs of a model, against oneDNN")                          \
  ROW("elementwise", BenchElementwise, kBenchPreset | kBenchBatch | kBenchLength,                  \
      "LayerNorm, GELU, residual, rotary, loss and others, against loops of equal memory traffic") \
  ROW("optimizer", BenchOptimizer, kBenchPreset, "AdamW, against a loop of equal memory traffic")  \
  ROW("tokenizer", BenchTokenizer, kBenchText, "Encoding text, on one thread and on all")

namespace denseformer {

#define DF_DECLARE(name, run, options, help) BenchTable run(const BenchOptions&);
DF_BENCHMARKS(DF_DECLARE)
#undef DF_DECLARE

namespace {

constexpr unsigned kWholePass =
    kBenchPreset | kBenchPatterns | kBenchMixer | kBenchShapes | kBenchLength | kBenchPrecision;
constexpr unsigned kInference =
    kBenchPreset | kBenchPatterns | kBenchMixer | kBenchLength | kBenchPrecision | kBenchInt8;
constexpr unsigned kKernel = kBenchPreset | kBenchBatch | kBenchLength | kBenchPrecision;

#define DF_ROW(name, run, options, help) {name, help, options, run},
constexpr Benchmark kBenchmarks[] = {DF_BENCHMARKS(DF_ROW)};
#undef DF_ROW

}  // namespace

std::span<const Benchmark> Benchmarks() { return kBenchmarks; }

}  // namespace denseformer
