// denseformer cluster: plans training on several machines. Memory and traffic are exact, times are
// simulated from costs that are measured here or read from a file.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cluster/cluster_chart.h"
#include "cluster/layout.h"
#include "model/depth_forms.h"
#include "model/mask_file.h"
#include "tensor/precision.h"

namespace denseformer {
namespace {

using Json = nlohmann::ordered_json;

struct ClusterCall {
  std::string preset = "small", dwa, precision = "auto", costs, name, svg, from, chart = "speed";
  int hosts = 1, ranks_per_host = 1, ranks_at_once = 0, up_to = 0;
  int64_t batch_size = 64, length = 0, blocks = 0, width = 0;
  double bandwidth = 10, latency = 30, memory = 0;
  LayoutShape wanted = {0, 0, 0};
  bool recompute = false, all_sources = false;
};

// What can be drawn of stored studies.
const std::pair<const char*, StudyAxis> kCharts[] = {
    {"speed",
     {"ranks", "tokens_per_second", "ranks", "tokens per second", "Predicted speed by ranks", 1}},
    {"sent",
     {"ranks", "sent_bytes", "ranks", "GiB that the busiest rank sends per step",
      "Traffic of a rank by ranks", 1.0 / (1 << 30)}},
    {"traffic",
     {"stages", "cut_bytes_per_token", "stages", "KiB per token through the busiest cut",
      "Traffic of a pipeline by stages", 1.0 / 1024}},
};

ModelConfig ConfigOf(const ClusterCall& call) {
  ModelConfig config = ModelConfig::Preset(call.preset);
  if (call.blocks > 0) config.n_layer = static_cast<int>(call.blocks);
  if (call.width > 0) {
    // Heads stay as wide as they are.
    const int head = config.head_size();
    if (call.width % head != 0) {
      Throw(ErrorCode::kUsage, "cluster: --width {}, expected a multiple of {}, the preset's head",
            call.width, head);
    }
    config.n_embd = static_cast<int>(call.width);
    config.n_head = config.n_embd / head;
  }
  if (!call.dwa.empty()) config.dwa = ResolveDepthPattern(call.dwa, config.n_layer);
  config.Validate();
  return config;
}

PassCosts CostsOf(const ClusterCall& call, const ClusterJob& job) {
  if (!call.costs.empty()) {
    const nlohmann::json json = nlohmann::json::parse(ReadFile(call.costs), nullptr, false);
    if (json.is_discarded()) Throw(ErrorCode::kInvalid, "{}: not JSON", call.costs);
    return PassCostsFromJson(json.is_object() && json.contains("costs") ? json["costs"] : json,
                             call.costs);
  }
  // Small passes are less efficient.
  const int64_t most = call.wanted.micro_batch > 0 ? call.wanted.micro_batch : job.batch_size;
  const int64_t sequences = std::clamp<int64_t>(2048 / job.length, 1, most);
  return MeasurePassCosts(job.config, job.compute, sequences, job.length);
}

Json RowToJson(const ClusterJob& job, const ClusterSpec& spec, const Layout& layout) {
  const double tokens = static_cast<double>(job.batch_size * job.length);
  const double own = tokens / layout.shape.data_parallel;
  return {{"ranks", spec.ranks()},
          {"data_parallel", layout.shape.data_parallel},
          {"stages", layout.shape.pipeline},
          {"micro_batch", layout.shape.micro_batch},
          {"micro_batches", layout.micro_batches},
          {"memory_bytes", layout.memory()},
          {"fits", layout.fits(spec)},
          {"cut_bytes", layout.cut_bytes()},
          {"cut_bytes_per_token", static_cast<double>(layout.cut_bytes()) / own},
          {"reduced_bytes", layout.reduced_bytes},
          {"sent_bytes", layout.sent_bytes()},
          {"bubble", layout.timeline.bubble()},
          {"step_seconds", layout.step()},
          {"tokens_per_second", tokens / layout.step()}};
}

Json DetailToJson(const Layout& layout) {
  Json stages = Json::array(), cuts = Json::array();
  for (const LayoutStage& stage : layout.stages) {
    stages.push_back({{"first_block", stage.blocks.first},
                      {"last_block", stage.blocks.last},
                      {"memory_bytes", stage.memory.total()},
                      {"forward_seconds", stage.seconds.forward},
                      {"backward_seconds", stage.seconds.backward}});
  }
  for (const LayoutCut& cut : layout.cuts) {
    cuts.push_back({{"after_block", cut.block},
                    {"tensors", cut.tensors},
                    {"forward_bytes", cut.forward},
                    {"backward_bytes", cut.backward}});
  }
  return {{"stages", stages},
          {"cuts", cuts},
          {"seconds",
           {{"passes", layout.timeline.end},
            {"shared", layout.shared},
            {"gradients", layout.gradients},
            {"update", layout.update},
            {"weights", layout.weights}}}};
}

std::string Size(int64_t bytes) { return HumanBytes(static_cast<double>(bytes)); }

void PrintRows(const std::vector<Json>& rows) {
  Print("  {:>6}{:>8}{:>8}{:>13}{:>8}{:>12}{:>14}{:>16}{:>9}{:>11}{:>12}\n", "ranks", "copies",
        "stages", "micro-batch", "passes", "memory", "cut per step", "copies per step", "bubble",
        "step", "tokens/s");
  for (const Json& row : rows) {
    Print("  {:>6}{:>8}{:>8}{:>13}{:>8}{:>12}{:>14}{:>16}{:>8.0f}%{:>9.3f} s{:>12}{}\n",
          row["ranks"].get<int>(), row["data_parallel"].get<int>(), row["stages"].get<int>(),
          row["micro_batch"].get<int64_t>(), row["micro_batches"].get<int>(),
          Size(row["memory_bytes"].get<int64_t>()), Size(row["cut_bytes"].get<int64_t>()),
          Size(row["reduced_bytes"].get<int64_t>()), 100 * row["bubble"].get<double>(),
          row["step_seconds"].get<double>(),
          WithCommas(static_cast<int64_t>(row["tokens_per_second"].get<double>())),
          row["fits"].get<bool>() ? "" : "  too large for the memory");
  }
}

void PrintDetail(const ClusterSpec& spec, const Layout& layout) {
  Print("\nthe best: {} copies of {} stages\n", layout.shape.data_parallel, layout.shape.pipeline);
  Print("  {:>6}{:>12}{:>12}{:>12}{:>12}{:>16}{:>22}\n", "stage", "blocks", "memory", "forward",
        "backward", "tensors sent on", "bytes per micro-batch");
  for (size_t s = 0; s < layout.stages.size(); ++s) {
    const LayoutStage& stage = layout.stages[s];
    const bool cut = s < layout.cuts.size();
    Print("  {:>6}{:>12}{:>12}{:>10.4f} s{:>10.4f} s{:>16}{:>22}\n", s + 1,
          fmt::format("{} to {}", stage.blocks.first, stage.blocks.last),
          Size(stage.memory.total()), stage.seconds.forward, stage.seconds.backward,
          cut ? fmt::format("{} + stream", layout.cuts[s].tensors) : "",
          cut ? fmt::format("{} / {}", Size(layout.cuts[s].forward), Size(layout.cuts[s].backward))
              : "");
  }
  Print(
      "  passes {:.3f} s, shared gradients {:.3f} s, gradients of the copies {:.3f} s, AdamW "
      "{:.3f} s, weights of the copies {:.3f} s\n",
      layout.timeline.end, layout.shared, layout.gradients, layout.update, layout.weights);
  Print("\n  mpirun -n {} denseformer train RUN --pipeline {} --accumulate {} ...\n", spec.ranks(),
        layout.shape.pipeline, layout.micro_batches);
}

void DrawStored(const ClusterCall& call) {
  if (call.svg.empty()) Throw(ErrorCode::kUsage, "cluster: --from needs --svg");
  const Json studies = Json::parse(ReadFile(call.from), nullptr, false);
  if (!studies.is_array()) {
    Throw(ErrorCode::kInvalid, "{}: expected a JSON array of studies (cluster --up-to --json)",
          call.from);
  }
  for (const auto& [name, axis] : kCharts) {
    if (call.chart != name) continue;
    WriteFileAtomic(call.svg, DrawSvg(StudyChart({studies.begin(), studies.end()}, axis),
                                      /*standalone=*/true));
  }
}

// The best layout for 1, 2, 4, ... hosts; numbers that allow none are left out.
std::vector<Json> Study(const ClusterCall& call, const ClusterJob& job, ClusterSpec spec) {
  std::vector<Json> rows;
  for (spec.hosts = 1; spec.ranks() <= call.up_to; spec.hosts *= 2) {
    const int stages = call.wanted.pipeline, copies = call.wanted.data_parallel;
    if (stages > 0 && spec.ranks() % stages != 0) continue;
    if (copies > 0 && (spec.ranks() % copies != 0 || spec.ranks() / copies > job.config.n_layer)) {
      continue;
    }
    rows.push_back(RowToJson(job, spec, PlanLayouts(job, spec, call.wanted).front()));
  }
  if (rows.empty()) {
    Throw(ErrorCode::kUsage, "cluster: no number of ranks up to {} fits the stages and copies",
          call.up_to);
  }
  return rows;
}

void RunCluster(const ClusterCall& call, const CommonOptions& common) {
  RequireWritable(call.svg);
  if (!call.from.empty()) return DrawStored(call);
  ClusterJob job;
  job.config = ConfigOf(call);
  job.compute = ComputeType(ParsePrecision(call.precision));
  job.batch_size = call.batch_size;
  job.length = call.length > 0 ? call.length : job.config.seq_len;
  if (job.length > job.config.seq_len) {
    Throw(ErrorCode::kUsage, "cluster: --length {}, expected at most {}, the preset's", job.length,
          job.config.seq_len);
  }
  job.recompute = call.recompute;
  job.all_sources = call.all_sources;
  RequireSplittable(job.config);
  ClusterSpec spec;
  spec.hosts = call.hosts;
  spec.ranks_per_host = call.ranks_per_host;
  spec.ranks_at_once = call.ranks_at_once;
  spec.network = {call.bandwidth * 1e9 / 8, call.latency * 1e-6};
  spec.memory = static_cast<int64_t>(call.memory * static_cast<double>(int64_t{1} << 30));
  job.costs = CostsOf(call, job);
  Json json = {{"name", call.name.empty() ? job.config.dwa : call.name},
               {"preset", call.preset},
               {"blocks", job.config.n_layer},
               {"width", job.config.n_embd},
               {"dwa", job.config.dwa},
               {"precision", DTypeName(job.compute)},
               {"batch_size", job.batch_size},
               {"length", job.length},
               {"gigabits_per_second", call.bandwidth},
               {"latency_microseconds", call.latency},
               {"ranks_per_host", call.ranks_per_host},
               {"all_sources", call.all_sources},
               {"costs", ToJson(job.costs)}};
  if (call.up_to > 0) {
    const std::vector<Json> rows = Study(call, job, spec);
    json["rows"] = rows;
    if (!call.svg.empty()) {
      WriteFileAtomic(call.svg, DrawSvg(StudyChart({json}, kCharts[0].second), true));
    }
    return common.json ? PrintJson(json) : PrintRows(rows);
  }
  const std::vector<Layout> layouts = PlanLayouts(job, spec, call.wanted);
  const Layout& best = layouts.front();
  std::vector<Json> rows;
  for (const Layout& layout : layouts) rows.push_back(RowToJson(job, spec, layout));
  if (!call.svg.empty()) {
    WriteFileAtomic(call.svg, DrawSvg(ScheduleChart(best, json["name"]), /*standalone=*/true));
  }
  if (common.json) {
    json["rows"] = rows;
    json["best"] = DetailToJson(best);
    return PrintJson(json);
  }
  Print("{} ranks, {} sequences of {} tokens per step, {}, {} Gbit/s, {} us\n", spec.ranks(),
        job.batch_size, job.length, DTypeName(job.compute), call.bandwidth, call.latency);
  if (rows.size() > 12) rows.resize(12);
  PrintRows(rows);
  PrintDetail(spec, best);
}

void AddModelOptions(CLI::App& app, ClusterCall& call) {
  app.add_option("--preset", call.preset, "Model: " + Join(ModelConfig::PresetNames(), ", "))
      ->capture_default_str();
  app.add_option("--dwa", call.dwa, "Depth pattern: " + DepthFormList());
  app.add_option("--blocks", call.blocks, "Blocks instead of the preset's")
      ->check(WholeNumber(1, 10000));
  app.add_option("--width", call.width, "Width instead of the preset's")
      ->check(WholeNumber(1, 1 << 20));
  app.add_option("--batch-size", call.batch_size, "Sequences of a step, on all ranks together")
      ->check(WholeNumber(1, int64_t{1} << 30))
      ->capture_default_str();
  app.add_option("--length", call.length, "Tokens of a sequence; default: the model's longest")
      ->check(WholeNumber(1));
  app.add_option("--precision", call.precision, "auto, fp32 or bf16")
      ->check(OneOf(PrecisionNames()))
      ->capture_default_str();
  app.add_flag("--recompute", call.recompute, "As train --recompute");
}

}  // namespace

void AddCluster(CLI::App& app, CommonOptions& common) {
  auto call = std::make_shared<ClusterCall>();
  AddModelOptions(app, *call);
  app.add_option("--hosts", call->hosts, "Machines")
      ->check(WholeNumber(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--ranks-per-host", call->ranks_per_host, "Processes per machine")
      ->check(WholeNumber(1, 4096))
      ->capture_default_str();
  app.add_option("--ranks-at-once", call->ranks_at_once,
                 "Processes of a machine that compute at full speed at the same time: its cores by "
                 "the threads of one; default: all")
      ->check(WholeNumber(1, 4096));
  app.add_option("--bandwidth", call->bandwidth, "Network bandwidth of a machine, Gbit/s each way")
      ->check(Number(1e-6))
      ->capture_default_str();
  app.add_option("--latency", call->latency, "Latency of a message, in microseconds")
      ->check(Number(0))
      ->capture_default_str();
  app.add_option("--memory", call->memory, "Memory of a process, in GiB; default: unlimited")
      ->check(Number(0));
  app.add_option("--data-parallel", call->wanted.data_parallel, "Only with this many copies")
      ->check(WholeNumber(1, 1 << 20));
  app.add_option("--pipeline", call->wanted.pipeline, "Only with this many stages")
      ->check(WholeNumber(1, 1 << 20));
  app.add_option("--micro-batch", call->wanted.micro_batch,
                 "Only with this many sequences per pass")
      ->check(WholeNumber(1));
  app.add_flag("--all-sources", call->all_sources,
               "For comparison: every output that is still needed crosses a cut, in place of the "
               "cut plan");
  app.add_option("--costs", call->costs,
                 "Costs of the passes from the JSON of an earlier call; default: measured here");
  app.add_option("--up-to", call->up_to,
                 "Instead: the best layout for 1, 2, 4, ... machines up to this many ranks")
      ->check(WholeNumber(1, 1 << 20));
  app.add_option("--name", call->name, "Name of the result in charts; default: the depth pattern");
  app.add_option("--svg", call->svg, "Also draw the best schedule, or with --up-to the speed")
      ->check(FileToWrite());
  app.add_option("--from", call->from, "Only draw stored results: a JSON array of --up-to --json");
  std::vector<std::string> charts;
  for (const auto& [name, axis] : kCharts) charts.push_back(name);
  app.add_option("--chart", call->chart,
                 "What --from draws: speed or bytes sent per rank by ranks, or traffic by stages")
      ->check(OneOf(charts))
      ->capture_default_str();
  app.footer(
      "Examples:\n"
      "  denseformer cluster --preset paper-48 --dwa 4x5 --hosts 8 --batch-size 256\n"
      "  denseformer cluster --preset paper-48 --dwa 1x1 --hosts 4 --pipeline 4 --svg step.svg\n"
      "  denseformer cluster --preset small --hosts 16 --bandwidth 1 --memory 8 --json");
  SetWork(app, common, call, [&common](const ClusterCall& o) { RunCluster(o, common); });
}

}  // namespace denseformer
