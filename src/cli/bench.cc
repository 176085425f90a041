// denseformer bench: how fast kernels and whole passes are here, and how close to the machine's
// limits.
#include <sys/resource.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "analysis/bench_chart.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/output.h"
#include "denseformer/depth_pattern.h"
#include "perf/kernel_bench.h"
#include "perf/model_bench.h"

namespace denseformer {
namespace {

struct Options {
  std::string preset = "paper-48";
  std::string patterns = "none,1x1,4x1,4x5";
  std::optional<std::string> depths;
  std::string precision = "auto";
  std::string batches = "8";
  int64_t length = 0;
  int rounds = 5;
  double seconds = 0;
  bool turns = false, recompute = false;
  std::string tokenizer, text;
  std::string svg;
};

// With --turns: says how the last round went, and waits for the word to begin the next.
bool NextTurn(const std::vector<Timing>& so_far) {
  nlohmann::ordered_json json = {{"rounds", so_far.front().seconds.size()}};
  for (const Timing& timing : so_far) {
    if (!timing.seconds.empty()) json["seconds"][timing.name] = timing.seconds.back();
  }
  WriteStdout(json.dump() + "\n");
  FlushStdout();
  std::string line;
  if (std::getline(std::cin, line)) return true;
  if (so_far.front().seconds.empty()) {
    Throw(ErrorCode::kUsage,
          "bench --turns: stdin ended before the first round; send a line for each");
  }
  return false;
}

InterleaveOptions Rounds(const Options& o, const std::string& title) {
  InterleaveOptions interleave{o.rounds, o.seconds, o.turns ? "" : title, {}};
  if (o.turns) interleave.before_round = NextTurn;
  return interleave;
}

double PeakMemoryBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

template <typename T>
std::vector<T> ParseList(const char* option, const std::string& text, T high) {
  std::vector<T> values;
  for (const std::string& part : Split(text, ',')) {
    values.push_back(static_cast<T>(ParseInt(option, part, 1, high)));
  }
  return values;
}

constexpr int kMostBlocks = 4096;
constexpr int64_t kMostSequences = 1 << 20;

std::vector<BenchShape> Shapes(const Options& o, int preset_blocks) {
  std::vector<int> depths{preset_blocks};
  if (o.depths) depths = ParseList("--depths", *o.depths, kMostBlocks);
  std::vector<BenchShape> shapes;
  for (const int64_t batch : ParseList("--batch", o.batches, kMostSequences)) {
    for (const int blocks : depths) shapes.push_back({blocks, batch});
  }
  return shapes;
}

DType ParseCompute(const std::string& name) {
  if (name == "auto") return HasFastBf16() ? DType::kBF16 : DType::kF32;
  return name == "bf16" ? DType::kBF16 : DType::kF32;
}

ModelBenchOptions ModelOptions(const Options& o, const std::string& title) {
  ModelBenchOptions bench;
  bench.config = ModelConfig::Preset(o.preset);
  bench.shapes = Shapes(o, bench.config.n_layer);
  bench.patterns = Split(o.patterns, ',');
  for (const std::string& pattern : bench.patterns) {
    for (const BenchShape& shape : bench.shapes) DepthPattern::Parse(pattern, shape.blocks);
  }
  bench.compute = ParseCompute(o.precision);
  bench.length = o.length > 0 ? o.length : bench.config.seq_len;
  if (bench.length > bench.config.seq_len) bench.config.seq_len = static_cast<int>(bench.length);
  bench.recompute = o.recompute;
  bench.interleave = Rounds(o, title);
  return bench;
}

KernelBenchOptions KernelOptions(const Options& o, const std::string& title) {
  const ModelBenchOptions model = ModelOptions(o, title);
  KernelBenchOptions bench;
  bench.config = model.config;
  bench.patterns = model.patterns;
  bench.compute = model.compute;
  bench.length = model.length;
  bench.rows = model.shapes.front().batch * model.length;
  bench.interleave = model.interleave;
  return bench;
}

BenchTable RunTokenizer(const Options& o, const std::string& title) {
  if (o.tokenizer.empty() || o.text.empty()) {
    Throw(ErrorCode::kUsage, "bench tokenizer: give --tokenizer PATH and --text FILE");
  }
  return BenchTokenizer(o.tokenizer, ReadFile(o.text, size_t{4} << 30), Rounds(o, title));
}

// The options that a kind takes besides --preset.
enum Takes {
  kDwa = 1,
  kBatch = 2,  // one
  kLength = 4,
  kPrecision = 8,
  kShapes = 16,  // lists of depths and batches
  kRecompute = 32,
  kText = 64
};

struct Kind {
  const char* name;
  const char* summary;
  int takes;  // of Takes
  BenchTable (*run)(const Options& options, const std::string& title);
};

constexpr Kind kKinds[] = {
    {"forward",
     "Whole forward pass as in the paper: batches/s, and the share of the products' own rate",
     kDwa | kShapes | kLength | kPrecision,
     [](const Options& o, const std::string& t) { return BenchForward(ModelOptions(o, t)); }},
    {"train", "Whole training step: forward, backward, AdamW",
     kDwa | kShapes | kLength | kPrecision | kRecompute,
     [](const Options& o, const std::string& t) { return BenchTrain(ModelOptions(o, t)); }},
    {"decode", "One token of one sequence, against reading the weights once",
     kDwa | kLength | kPrecision,
     [](const Options& o, const std::string& t) { return BenchDecode(ModelOptions(o, t)); }},
    {"dwa", "The depth-weighted averages of a pass, against a loop of axpys",
     kDwa | kBatch | kLength | kPrecision,
     [](const Options& o, const std::string& t) { return BenchDwa(KernelOptions(o, t)); }},
    {"attention", "Attention of a block, against the block's matrix products",
     kBatch | kLength | kPrecision,
     [](const Options& o, const std::string& t) { return BenchAttention(KernelOptions(o, t)); }},
    {"gemm", "The matrix products of a model, against oneDNN", kBatch | kLength | kPrecision,
     [](const Options& o, const std::string& t) { return BenchGemm(KernelOptions(o, t)); }},
    {"optimizer", "AdamW, against a loop of equal memory traffic", 0,
     [](const Options& o, const std::string& t) { return BenchOptimizer(KernelOptions(o, t)); }},
    {"tokenizer", "Encoding text", kText, RunTokenizer},
};

void AddKind(CLI::App& parent, CommonOptions& common, const Kind& kind) {
  CLI::App& app = *parent.add_subcommand(kind.name, kind.summary);
  auto o = std::make_shared<Options>();
  const std::string name = kind.name;
  if (kind.takes & kText) {
    app.add_option("--tokenizer", o->tokenizer, "tokenizer.json, vocab.bpe or a directory");
    app.add_option("--text", o->text, "The text to encode");
  } else {
    app.add_option("--preset", o->preset, "Shapes of this preset")->capture_default_str();
  }
  if (kind.takes & kDwa) {
    app.add_option("--dwa", o->patterns,
                   "Depth patterns, separated by commas; the first is the baseline")
        ->capture_default_str();
  } else {
    o->patterns = "none";
  }
  if (kind.takes & kBatch) {
    app.add_option("--batch", o->batches, "Sequences in a batch")
        ->check(WholeNumber(1, kMostSequences))
        ->capture_default_str();
  }
  if (kind.takes & kShapes) {
    app.add_option("--depths", o->depths, "Blocks, separated by commas; default: the preset's");
    app.add_option("--batch", o->batches, "Sequences in a batch; several, separated by commas")
        ->capture_default_str();
  }
  if (kind.takes & kLength) {
    app.add_option("--seq-len", o->length, "Tokens of a sequence; default: the preset's")
        ->check(WholeNumber(1, 1 << 20));
  }
  if (kind.takes & kPrecision) {
    app.add_option("--precision", o->precision, "auto, fp32 or bf16")
        ->check(OneOf({"auto", "fp32", "bf16"}))
        ->capture_default_str();
  }
  if (kind.takes & kRecompute) {
    app.add_flag("--recompute", o->recompute,
                 "Each pattern also with activations computed again in the backward pass: what "
                 "that costs in time and saves in memory");
  }
  const std::string each = kind.takes & kShapes ? ", for each depth and batch" : "";
  app.add_option("--rounds", o->rounds, "Rounds in which every variant runs once" + each)
      ->check(WholeNumber(1, 1000000))
      ->capture_default_str();
  app.add_option("--svg", o->svg, "Also draw the result to this file")->check(FileToWrite());
  app.add_option("--seconds", o->seconds, "Go on for at least this long" + each)->check(Number(0));
  app.add_flag("--turns", o->turns,
               "Wait for a line on stdin before each round and print the times of the round "
               "before: to take turns with "
               "another program");
  std::string examples =
      fmt::format("  denseformer bench {} --preset small --rounds 20 --json", name);
  if (kind.takes & kText)
    examples = "  denseformer bench tokenizer --tokenizer vocab.bpe --text corpus.txt";
  if (kind.takes & kShapes)
    examples += fmt::format(
        "\n  denseformer bench {} --depths 12,24,48 --dwa none,1x1 --svg cost.svg", name);
  app.footer(
      "Variants take turns, because machines are noisy; look at the ratios, not at the "
      "times.\nExample:\n" +
      examples);
  SetWork(app, common, o, [&common, &kind](const Options& options) {
    const BenchTable table = kind.run(options, fmt::format("bench {}", kind.name));
    if (!options.svg.empty())
      WriteFileAtomic(options.svg, DrawSvg(BenchChart(table.ToJson()), /*standalone=*/true));
    if (common.json) {
      nlohmann::ordered_json json = table.ToJson();
      json["peak_memory_bytes"] = PeakMemoryBytes();
      PrintJson(json);
    } else {
      WriteStdout(table.ToText());
    }
  });
}

}  // namespace

void AddBench(CLI::App& app, CommonOptions& common) {
  app.require_subcommand(1);
  for (const Kind& kind : kKinds) AddKind(app, common, kind);
}

}  // namespace denseformer
