// What a benchmark of `denseformer bench` is, and the table of them.
//
// Adding a benchmark: one file NAME_bench.cc with its run function, and one row of the table in
// benchmarks.cc. Parsing, help and tests follow from the row.
#ifndef DENSEFORMER_PERF_BENCHMARK_H_
#define DENSEFORMER_PERF_BENCHMARK_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "perf/bench_table.h"
#include "perf/interleave.h"

namespace denseformer {

// The values of the options, as users write them; a benchmark reads those that its row names.
struct BenchOptions {
  std::string preset = "paper-48";            // the shapes are this preset's
  std::string patterns = "none,1x1,4x1,4x5";  // depth patterns; the first is the baseline
  std::string mixer = "static";               // of every pattern but none; docs/mixers.md
  std::string streams = "r";
  std::string mixer_norm = "none";
  std::optional<std::string> depths;  // numbers of blocks; none: the preset's
  std::string batches = "8";          // sequences per batch; a list with kBenchShapes
  int64_t length = 0;                 // tokens per sequence; 0: the preset's
  std::string precision = "auto";     // see tensor/precision.h
  bool recompute = false;             // each pattern also with recomputed activations
  bool frozen = false;                // without fp32 masters (model/model.h)
  std::string tokenizer;              // path of a tokenizer
  std::string text;                   // path of the text to encode
  InterleaveOptions interleave;
  std::string contexts;  // cached tokens per sequence, a list; empty: `length`
};

// The options that a benchmark takes; every one takes those of the harness (--rounds and so on).
enum BenchOption : unsigned {
  kBenchPreset = 1,      // --preset
  kBenchPatterns = 2,    // --dwa
  kBenchBatch = 4,       // --batch, one number
  kBenchShapes = 8,      // --depths and --batch, lists of numbers
  kBenchLength = 16,     // --seq-len
  kBenchPrecision = 32,  // --precision
  kBenchRecompute = 64,  // --recompute
  kBenchText = 128,      // --tokenizer and --text
  kBenchMixer = 256,     // --mixer, --streams and --mixer-norm
  kBenchSteps = 512,     // --batch and --context, lists of numbers
  kBenchInt8 = 1024,     // --precision int8
  kBenchFrozen = 2048,   // --frozen
};

struct Benchmark {
  const char* name;
  const char* help;
  unsigned options;  // of BenchOption
  // Throws kUsage where the options do not fit. Takes all of the machine while it runs.
  BenchTable (*run)(const BenchOptions& options);
};

// In the order in which --help lists them.
std::span<const Benchmark> Benchmarks();

}  // namespace denseformer

#endif  // DENSEFORMER_PERF_BENCHMARK_H_
