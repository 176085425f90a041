// denseformer bench: how fast kernels and whole passes are here, and how close to the machine's
// limits. The benchmarks are the table of perf/benchmarks.cc.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "cli/bench_serve.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/output.h"
#include "model/mixer_spec.h"
#include "perf/bench_chart.h"
#include "perf/benchmark.h"
#include "tensor/precision.h"

namespace denseformer {
namespace {

struct BenchCall {
  BenchOptions options;
  bool turns = false;
  std::string svg;
};

// With --turns: says how the last round went, and waits for a line on stdin to begin the next.
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

void AddModelOptions(CLI::App& app, const Benchmark& benchmark, BenchOptions& o) {
  const auto takes = [&](BenchOption option) { return (benchmark.options & option) != 0; };
  if (takes(kBenchText)) {
    app.add_option("--tokenizer", o.tokenizer, "tokenizer.json, vocab.bpe or a directory");
    app.add_option("--text", o.text, "The text to encode");
  }
  if (takes(kBenchPreset)) {
    app.add_option("--preset", o.preset, "Shapes of this preset")->capture_default_str();
  }
  if (takes(kBenchPatterns)) {
    app.add_option("--dwa", o.patterns,
                   "Depth patterns, separated by commas; the first is the baseline" +
                       std::string(takes(kBenchMixer) ? "; 4x5+dynamic+rv has a mixer and streams "
                                                        "of its own"
                                                      : ""))
        ->capture_default_str();
  } else {
    o.patterns = "none";
  }
  if (takes(kBenchMixer)) {
    app.add_option("--mixer", o.mixer,
                   "Weights of the patterns without a mixer of their own: " + MixerNames())
        ->capture_default_str();
    app.add_option("--streams", o.streams,
                   "Parts of a block with an average of their own: " + StreamNames())
        ->capture_default_str();
    app.add_option("--mixer-norm", o.mixer_norm, "Of a dynamic mixer: " + MixerNormNames())
        ->capture_default_str();
  }
  if (takes(kBenchBatch)) {
    app.add_option("--batch", o.batches, "Sequences per batch")
        ->check(WholeNumber(1, 1 << 20))
        ->capture_default_str();
  }
  if (takes(kBenchShapes)) {
    app.add_option("--depths", o.depths, "Blocks, separated by commas; default: the preset's");
    app.add_option("--batch", o.batches, "Sequences per batch; several, separated by commas")
        ->capture_default_str();
  }
  if (takes(kBenchSteps)) {
    o.batches = "1";
    app.add_option("--batch", o.batches, "Sequences; several numbers, separated by commas")
        ->capture_default_str();
    app.add_option("--context", o.contexts,
                   "Tokens that each sequence has seen; several numbers, separated by commas; "
                   "default: --seq-len");
  }
  if (takes(kBenchLength)) {
    app.add_option("--seq-len", o.length, "Tokens per sequence; default: the preset's")
        ->check(WholeNumber(1, 1 << 20));
  }
  if (takes(kBenchPrecision)) {
    const bool int8 = takes(kBenchInt8);
    app.add_option("--precision", o.precision,
                   int8 ? "auto, fp32, bf16 or int8" +
                              std::string(takes(kBenchFrozen) ? " (with --frozen)" : "")
                        : "auto, fp32 or bf16")
        ->check(OneOf(int8 ? InferencePrecisionNames() : PrecisionNames()))
        ->capture_default_str();
  }
  if (takes(kBenchFrozen)) {
    app.add_flag("--frozen", o.frozen,
                 "Models as eval, generate and serve hold them: each matrix once, in --precision, "
                 "without fp32 masters");
  }
  if (takes(kBenchRecompute)) {
    app.add_flag("--recompute", o.recompute,
                 "Each pattern also with activations recomputed in the backward pass: what that "
                 "costs in time and saves in memory");
  }
}

std::string Examples(const Benchmark& benchmark) {
  if (benchmark.options & kBenchText) {
    return fmt::format("  denseformer bench {} --tokenizer vocab.bpe --text corpus.txt",
                       benchmark.name);
  }
  std::string examples =
      fmt::format("  denseformer bench {} --preset small --rounds 20 --json", benchmark.name);
  if (benchmark.options & kBenchShapes) {
    examples += fmt::format(
        "\n  denseformer bench {} --depths 12,24,48 --dwa none,1x1 --svg cost.svg", benchmark.name);
  }
  return examples;
}

void AddBenchmark(CLI::App& parent, CommonOptions& common, const Benchmark& benchmark) {
  CLI::App& app = *parent.add_subcommand(benchmark.name, benchmark.help);
  auto call = std::make_shared<BenchCall>();
  AddModelOptions(app, benchmark, call->options);
  InterleaveOptions& interleave = call->options.interleave;
  interleave.rounds = 5;
  const std::string each = benchmark.options & kBenchShapes ? ", for each depth and batch" : "";
  app.add_option("--rounds", interleave.rounds, "Rounds in which every variant runs once" + each)
      ->check(WholeNumber(1, 1000000))
      ->capture_default_str();
  app.add_option("--svg", call->svg, "Also draw the result to this file")->check(FileToWrite());
  app.add_option("--seconds", interleave.seconds, "Continue for at least this long" + each)
      ->check(Number(0));
  app.add_flag("--turns", call->turns,
               "Wait for a line on stdin before each round and print the times of the round "
               "before: to alternate with another program");
  app.footer(
      "Variants alternate, because machines are noisy; look at the ratios, not at the "
      "times.\nExample:\n" +
      Examples(benchmark));
  SetWork(app, common, call, [&common, &benchmark](const BenchCall& made) {
    RequireWritable(made.svg);
    BenchOptions options = made.options;
    if (made.turns) {
      options.interleave.before_round = NextTurn;
    } else {
      options.interleave.title = fmt::format("bench {}", benchmark.name);
    }
    const BenchTable table = benchmark.run(options);
    if (!made.svg.empty())
      WriteFileAtomic(made.svg, DrawSvg(BenchChart(table.ToJson()), /*standalone=*/true));
    if (common.json) {
      nlohmann::ordered_json json = table.ToJson();
      json["peak_memory_bytes"] = static_cast<double>(PeakMemory());
      PrintJson(json);
    } else {
      WriteStdout(table.ToText());
    }
  });
}

}  // namespace

void AddBench(CLI::App& app, CommonOptions& common) {
  app.require_subcommand(1);
  for (const Benchmark& benchmark : Benchmarks()) AddBenchmark(app, common, benchmark);
  AddBenchServe(app, common);
}

}  // namespace denseformer
