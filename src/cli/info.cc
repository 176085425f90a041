// denseformer info: what a model is and what it costs, from a run or a preset.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/pipeline_table.h"
#include "denseformer/depth_pattern.h"
#include "denseformer/engine.h"
#include "io/run_directory.h"
#include "model/config_fields.h"
#include "model/cut_plan.h"
#include "model/depth_forms.h"
#include "model/mask_file.h"
#include "model/mixer_spec.h"
#include "model/parameters.h"
#include "model/summary.h"
#include "tensor/precision.h"
#include "train/data_parallel.h"
#include "train/plan.h"
#include "train/verify.h"

namespace denseformer {
namespace {

using Json = nlohmann::ordered_json;

struct ModelInfoOptions {
  std::string run, preset, dwa, mixer, streams, mixer_norm, precision = "auto";
  bool gains = false, verify = false, recompute = false;
  int64_t batch_size = 8, length = 0, sequences = 1;
  int pipeline = 0, ranks = 1;
};

ModelConfig ConfigOf(const ModelInfoOptions& options) {
  if (!options.run.empty()) {
    const std::pair<const char*, bool> given[] = {{"--gains", options.gains},
                                                  {"--dwa", !options.dwa.empty()},
                                                  {"--mixer", !options.mixer.empty()},
                                                  {"--streams", !options.streams.empty()},
                                                  {"--mixer-norm", !options.mixer_norm.empty()}};
    for (const auto& [option, is_given] : given) {
      if (!is_given) continue;
      Throw(ErrorCode::kUsage, "info: {} goes with --preset; the run {} has its own", option,
            options.run);
    }
    return ReadConfig(FindRun(options.run));
  }
  ModelConfig config = ModelConfig::Preset(options.preset);
  config.gains = options.gains;
  if (!options.dwa.empty()) config.dwa = ResolveDepthPattern(options.dwa, config.n_layer);
  if (!options.mixer.empty()) config.mixer = options.mixer;
  if (!options.streams.empty()) config.streams = options.streams;
  if (!options.mixer_norm.empty()) config.mixer_norm = options.mixer_norm;
  config.Validate();
  return config;
}

struct Described {
  ModelConfig config;
  DepthPattern pattern;
  ParameterTable table;
  DType compute;
  std::string precision;  // of inference: int8 trains in another one
  int64_t batch_size, length;
  int64_t sequences;  // generated at the same time
  FlopsPerToken flops;
  MemoryUse training, inference, generation;
  int ranks;  // that share a training step
  StepTraffic traffic;
  bool recompute;
  RecomputeEffect recompute_effect;
};

Described Describe(const ModelInfoOptions& options) {
  const ModelConfig config = ConfigOf(options);
  const DepthPattern pattern = DepthPattern::Parse(config.dwa, config.n_layer);
  const Precision precision = ParsePrecision(options.precision);
  // Training has no int8: its figures are then those of auto.
  const DType compute = ComputeType(precision == Precision::kInt8 ? Precision::kAuto : precision);
  const int64_t length = options.length > 0 ? options.length : config.seq_len;
  const ParameterTable table(config, pattern);
  if (options.batch_size < options.ranks) {
    Throw(ErrorCode::kUsage, "info: --batch-size {} on --ranks {}: each rank needs a sequence",
          options.batch_size, options.ranks);
  }
  const int64_t share = (options.batch_size + options.ranks - 1) / options.ranks;
  return {config,
          pattern,
          table,
          compute,
          precision == Precision::kInt8 ? "int8" : DTypeName(compute),
          options.batch_size,
          length,
          options.sequences,
          ForwardFlops(config, length),
          TrainingMemory(config, compute, share, length, options.recompute, options.ranks),
          InferenceMemory(config, FormatOf(precision), options.batch_size, length),
          GenerationMemory(config, FormatOf(precision), EngineOptions().max_rows, options.sequences,
                           length),
          options.ranks,
          BusiestTraffic(table, compute, options.ranks),
          options.recompute,
          EffectOfRecompute(config, compute, share, length)};
}

Json ToJson(const Described& d) {
  Json config, groups, sources = Json::array();
  VisitFields(d.config,
              [&](const char* name, const auto& value, const char*) { config[name] = value; });
  for (int group = 0; group < kParameterGroups; ++group) {
    groups[ParameterGroupName(static_cast<ParameterGroup>(group))] =
        d.table.count(static_cast<ParameterGroup>(group));
  }
  for (int i = 1; i <= d.config.n_layer; ++i) {
    if (d.pattern.has_module(i)) sources.push_back({i, d.pattern.sources(i)});
  }
  return {{"config", config},
          {"parameters", d.table.count()},
          {"parameters_by_group", groups},
          {"dwa_weights", d.pattern.weight_count()},
          {"dwa_modules", d.pattern.module_count()},
          {"starts_as_transformer", ParseMixer(d.config).form->identity},
          {"sources", sources},
          {"flops_per_token_forward", d.flops.total()},
          {"flops_by_part",
           {{"linear", d.flops.linear},
            {"attention", d.flops.attention},
            {"head", d.flops.head},
            {"dwa", d.flops.dwa}}},
          {"precision", DTypeName(d.compute)},
          {"batch_size", d.batch_size},
          {"length", d.length},
          {"sequences", d.sequences},
          {"memory_bytes",
           {{"training", d.training.total()},
            {"inference", d.inference.total()},
            {"generation", d.generation.total()}}},
          {"memory_by_part",
           {{"training", MemoryToJson(d.training)},
            {"inference", MemoryToJson(d.inference)},
            {"generation", MemoryToJson(d.generation)}}},
          {"recompute", RecomputeToJson(d.recompute, d.recompute_effect)},
          {"ranks", d.ranks},
          {"sent_per_step_bytes",
           {{"gradients", d.traffic.gradients}, {"weights", d.traffic.weights}}}};
}

void PrintTable(const Described& d) {
  const auto row = [](const std::string& name, const std::string& value) {
    Print("  {:<24}{:>18}\n", name, value);
  };
  Print("model\n");
  VisitFields(d.config, [&](const char* name, const auto& value, const char*) {
    // A mask is drawn below; as one word it would be longer than any line.
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>) {
      row(name, value.starts_with("mask:") ? "custom mask" : value);
    } else {
      row(name, fmt::format("{}", value));
    }
  });
  Print("parameters\n");
  for (int group = 0; group < kParameterGroups; ++group) {
    const int64_t count = d.table.count(static_cast<ParameterGroup>(group));
    if (count > 0) row(ParameterGroupName(static_cast<ParameterGroup>(group)), WithCommas(count));
  }
  row("total", WithCommas(d.table.count()));
  Print("depth-weighted average\n");
  row("modules", WithCommas(d.pattern.module_count()));
  row("weights", WithCommas(d.pattern.weight_count()));
  if (!ParseMixer(d.config).form->identity) {
    Print("  mixer {} does not start as the plain Transformer\n", d.config.mixer);
  }
  Print("FLOPs per token, forward, sequences of {}\n", d.length);
  row("linear layers", WithCommas(d.flops.linear));
  row("attention", WithCommas(d.flops.attention));
  row("head", WithCommas(d.flops.head));
  row("depth-weighted average", WithCommas(d.flops.dwa));
  row("total", WithCommas(d.flops.total()));
  Print("{:<34}{:>10}{:>16}{:>16}\n",
        fmt::format("memory, {}, batches of {} x {}", d.precision, d.batch_size, d.length),
        "training", "inference", "generation");
  const auto memory_row = [&](const char* name, int64_t MemoryUse::*part) {
    Print("  {:<24}{:>18}{:>16}{:>16}\n", name, HumanBytes(static_cast<double>(d.training.*part)),
          HumanBytes(static_cast<double>(d.inference.*part)),
          HumanBytes(static_cast<double>(d.generation.*part)));
  };
  memory_row("program", &MemoryUse::program);
  memory_row("weights", &MemoryUse::weights);
  memory_row("packed copies (GEMM)", &MemoryUse::copies);
  memory_row("gradients", &MemoryUse::gradients);
  memory_row("moments of AdamW", &MemoryUse::moments);
  memory_row("activations", &MemoryUse::activations);
  memory_row("keys and values", &MemoryUse::cache);
  memory_row("more while loading", &MemoryUse::loading);
  Print("  {:<24}{:>18}{:>16}{:>16}\n", "total",
        HumanBytes(static_cast<double>(d.training.total())),
        HumanBytes(static_cast<double>(d.inference.total())),
        HumanBytes(static_cast<double>(d.generation.total())));
  if (d.precision != DTypeName(d.compute)) Print("  training: in {}\n", DTypeName(d.compute));
  Print("  generation: {} of {} tokens\n",
        d.sequences == 1 ? "one sequence" : fmt::format("{} sequences", d.sequences), d.length);
  if (d.ranks > 1) {
    Print(
        "  training: of one of {} ranks, which sends {} of gradients and {} of weights per step\n",
        d.ranks, HumanBytes(static_cast<double>(d.traffic.gradients)),
        HumanBytes(static_cast<double>(d.traffic.weights)));
  }
  if (d.recompute) {
    Print("  training with --recompute: {}\n", DescribeRecompute(d.recompute_effect));
  }
  Print("\n{}", d.pattern.Picture());
}

// Every file of the run with what is wrong with it, and an Error where anything is.
void Verify(const std::string& run, bool json) {
  std::vector<VerifyResult> results = VerifyRun(run);
  for (VerifyResult& result : VerifyTraining(run)) results.push_back(std::move(result));
  Json files = Json::array();
  int wrong = 0;
  for (const VerifyResult& result : results) {
    wrong += !result.problem.empty();
    files.push_back(
        {{"path", result.path}, {"ok", result.problem.empty()}, {"problem", result.problem}});
    if (!json) {
      Print("{:<8}{}{}{}\n", result.problem.empty() ? "whole" : "DAMAGED", result.path,
            result.problem.empty() ? "" : ": ", result.problem);
    }
  }
  if (json) PrintJson({{"run", run}, {"whole", wrong == 0}, {"files", files}});
  if (wrong > 0) {
    Throw(ErrorCode::kCorrupt, "{}: {} of {} files are damaged", run, wrong, results.size());
  }
}

void Info(const ModelInfoOptions& options, const CommonOptions& common) {
  if (options.run.empty() == options.preset.empty()) {
    Throw(ErrorCode::kUsage, "info: give either a run or --preset; presets are {}",
          Join(ModelConfig::PresetNames(), ", "));
  }
  if (options.verify) {
    if (options.run.empty()) Throw(ErrorCode::kUsage, "info: --verify needs a run");
    Verify(options.run, common.json);
    return;
  }
  const Described described = Describe(options);
  const int stages = options.pipeline;
  // Throws before anything is printed.
  if (stages > 0) EvenCuts(described.config.n_layer, stages);
  if (stages > 0 && !ParseMixer(described.config).plain()) {
    Throw(ErrorCode::kUnsupported,
          "info: --pipeline plans partial sums of static weights; mixer {} with streams {} would "
          "send its sources themselves",
          described.config.mixer, described.config.streams);
  }
  if (common.json) {
    Json json = ToJson(described);
    if (stages > 0) {
      json["pipeline"] =
          PipelineToJson(described.config, described.pattern, stages, described.compute);
    }
    PrintJson(json);
    return;
  }
  PrintTable(described);
  if (stages > 0) {
    Print("\n");
    PrintPipeline(described.config, described.pattern, stages, described.compute);
  }
}

}  // namespace

void AddInfo(CLI::App& app, CommonOptions& common) {
  auto options = std::make_shared<ModelInfoOptions>();
  app.add_option("RUN", options->run, "Run directory");
  app.add_option("--preset", options->preset,
                 "Instead of a run: " + Join(ModelConfig::PresetNames(), ", "));
  app.add_option(
      "--dwa", options->dwa,
      "Depth pattern of the preset: " + DepthFormList() + " (one line of 0 and 1 per block)");
  app.add_option("--mixer", options->mixer,
                 "Weights of the preset's depth-weighted averages: " + MixerNames());
  app.add_option("--streams", options->streams,
                 "Parts of a block with an average of their own: " + StreamNames());
  app.add_option("--mixer-norm", options->mixer_norm, "Of a dynamic mixer: " + MixerNormNames());
  app.add_flag("--gains", options->gains, "Learned gains on the residual connections");
  app.add_option("--batch-size", options->batch_size, "Sequences per pass, for the memory estimate")
      ->check(WholeNumber(1, int64_t{1} << 20))
      ->capture_default_str();
  app.add_option("--length", options->length,
                 "Tokens of a sequence, for memory and FLOPs; default: the model's longest")
      ->check(WholeNumber(1));
  app.add_option("--sequences", options->sequences,
                 "Sequences generated at the same time, for the memory estimate")
      ->check(WholeNumber(1, int64_t{1} << 20))
      ->capture_default_str();
  app.add_option("--precision", options->precision,
                 "For the memory: auto, fp32, bf16 or int8 (inference only)")
      ->check(OneOf(InferencePrecisionNames()))
      ->capture_default_str();
  app.add_flag("--recompute", options->recompute,
               "For the memory: training computes activations again (train --recompute)");
  app.add_option("--ranks", options->ranks,
                 "For the memory: training on this many ranks, which share the batch")
      ->check(WholeNumber(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--pipeline", options->pipeline,
                 "Also show what crosses the cuts between this many pipeline stages")
      ->check(WholeNumber(1));
  app.add_flag("--verify", options->verify, "Check every byte of the run against its hashes");
  app.footer(
      "Examples:\n"
      "  denseformer info --preset paper-48 --dwa 4x5\n"
      "  denseformer info --preset small --dwa mask.txt --json\n"
      "  denseformer info --preset paper-48 --batch-size 64 --recompute\n"
      "  denseformer info --preset paper-48 --batch-size 64 --ranks 4\n"
      "  denseformer info --preset paper-48 --precision int8 --sequences 64\n"
      "  denseformer info runs/first --verify");
  SetWork(app, common, options, [&common](const ModelInfoOptions& o) { Info(o, common); });
}

}  // namespace denseformer
