// denseformer train: a run from a preset, a TOML file, --set and flags; or the rest of one.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/signal.h"
#include "base/text.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/run_ranks.h"
#include "dist/collectives.h"
#include "kernels/gemm/gemm.h"
#include "train/options.h"
#include "train/plan.h"
#include "train/trainer.h"

namespace denseformer {
namespace {

struct TrainCall {
  std::string run, preset, config;
  std::vector<std::string> sets, forced;
  std::vector<std::string> flags;  // by row of the table; only those given count
  std::vector<const CLI::Option*> flag_options;
  bool resume = false, dry_run = false, print_options = false;
  double watchdog = 600;
  int pipeline = 1;
  std::string cuts;
};

OptionSources SourcesOf(const TrainCall& call) {
  OptionSources sources;
  sources.preset = call.preset;
  if (!call.config.empty()) {
    sources.toml = ReadFile(call.config, size_t{1} << 24);
    sources.toml_name = call.config;
  }
  for (const std::string& set : call.sets) sources.sets.push_back(ParseSet(set));
  for (size_t i = 0; i < call.flags.size(); ++i) {
    if (call.flag_options[i]->count() == 0) continue;
    sources.flags.emplace_back(TrainOptionTable()[i].key, call.flags[i]);
  }
  return sources;
}

void SayPrecision(const TrainOptions& options) {
  LogInfo("precision {} ({}; this CPU is faster with {})", options.precision, GemmDescription(),
          HasFastBf16() ? "bf16" : "fp32");
  if (options.precision == "bf16" && !HasFastBf16()) {
    LogWarning("bf16 is slower than fp32 on this CPU; --precision fp32 or auto avoids it");
  }
}

void PrintSummary(const std::string& run, const nlohmann::ordered_json& summary) {
  Print("{}: {} steps, {} tokens, {}, {:.0f} % of the machine's GEMM rate\n", run,
        summary["steps"].get<int64_t>(), WithCommas(summary["tokens"].get<int64_t>()),
        HumanRate(summary["tokens_per_second"].get<double>(), "tokens/s"),
        100 * summary["gemm_share"].get<double>());
  if (summary["skipped_steps"].get<int64_t>() > 0) {
    Print("{} steps were skipped: loss or gradient not finite\n",
          summary["skipped_steps"].get<int64_t>());
  }
  if (summary.contains("validation") && summary["validation"]["loss"].is_number()) {
    Print("validation loss {:.4f}, perplexity {:.3f} over {} tokens\n",
          summary["validation"]["loss"].get<double>(),
          summary["validation"]["perplexity"].get<double>(),
          WithCommas(summary["validation"]["tokens"].get<int64_t>()));
  }
}

// The options that the run began with; only rank 0 needs its directory.
TrainOptions StoredOptions(const std::string& run, Communicator& world) {
  const std::string text =
      BroadcastText(world, world.first() ? ToToml(ReadStoredOptions(run)) : std::string());
  return ParseStoredOptions(text, run + "/" + kOptionsFile);
}

void RunTrainOnRank(const TrainCall& call, const CommonOptions& common, Communicator& world) {
  RequireSame(world, "program", "version " DENSEFORMER_VERSION);
  const OptionSources sources = SourcesOf(call);
  TrainRequest request;
  request.run = call.run;
  request.resume = call.resume;
  request.forced = call.forced;
  request.pipeline.stages = call.pipeline;
  if (!call.cuts.empty()) request.pipeline.cuts = ParseCuts(call.cuts);
  request.options = call.resume
                        ? ResolveResumed(StoredOptions(call.run, world), sources, call.forced)
                        : ResolveOptions(sources);
  // Behind all errors that are known at once, so that they stand alone.
  request.checked = [&request, &common, &world](const TrainPlan& plan) {
    if (!world.first()) return;
    if (!common.quiet) fmt::print(stderr, "{}\n", PlanToText(request.options, plan));
    SayPrecision(request.options);
  };
  if (call.dry_run) {
    if (call.pipeline > 1) {
      Throw(ErrorCode::kUsage,
            "--dry-run shows one process; 'denseformer cluster' plans a pipeline");
    }
    const TrainPlan plan = MakePlan(request.options);
    SayPrecision(request.options);
    if (common.json) {
      PrintJson(PlanToJson(request.options, plan));
    } else {
      WriteStdout(PlanToText(request.options, plan));
    }
    return;
  }
  CatchInterrupts();
  const nlohmann::ordered_json summary = Train(request, world);
  if (!world.first()) return;
  if (common.json) {
    PrintJson(summary);
  } else {
    PrintSummary(call.run, summary);
  }
}

void RunTrain(const TrainCall& call, const CommonOptions& common) {
  if (call.print_options) {
    WriteStdout(OptionsDocument());
    return;
  }
  if (call.run.empty() && !call.dry_run) {
    Throw(ErrorCode::kUsage, "RUN is required; see 'denseformer train --help'");
  }
  if (!call.forced.empty() && !call.resume) {
    Throw(ErrorCode::kUsage, "--force goes with --resume only");
  }
  const std::unique_ptr<Communicator> world = MakeWorldCommunicator();
  if (!world->first()) {
    SetProgressEnabled(false);
    SetLogLevel(LogLevel::kError);
  }
  if (world->size() == 1) return RunTrainOnRank(call, common, *world);
  if (call.dry_run) Throw(ErrorCode::kUsage, "--dry-run: start it without mpirun");
  world->SetWatchdog(call.watchdog);
  RunOrFail(*world, [&] { RunTrainOnRank(call, common, *world); });
}

// The help of an option with its default, and how to switch it off where it is on.
std::string HelpOf(const OptionRow& row) {
  const std::string tiny = row.get(PresetOptions("tiny"));
  if (row.type == "true/false") {
    return row.help + (tiny == "true" ? "; on by default" : "; off by default");
  }
  if (tiny == "\"\"") return row.help;
  const std::vector<std::string> presets = ModelConfig::PresetNames();
  const bool same = std::all_of(presets.begin(), presets.end(), [&](const std::string& preset) {
    return row.get(PresetOptions(preset)) == tiny;
  });
  const std::string value = tiny.front() == '"' ? tiny.substr(1, tiny.size() - 2) : tiny;
  return fmt::format("{}; default: {}", row.help, same ? value : "by preset, tiny: " + value);
}

// A flag for each row of the table, in a group for each section.
void AddTableFlags(CLI::App& app, TrainCall& call) {
  const std::vector<OptionRow>& table = TrainOptionTable();
  call.flags.resize(table.size());
  for (size_t i = 0; i < table.size(); ++i) {
    const OptionRow& row = table[i];
    const std::string help = HelpOf(row);
    CLI::Option* option =
        row.type == "true/false"
            ? app.add_flag(row.flag + ",!--no-" + row.flag.substr(2), call.flags[i], help)
            : app.add_option(row.flag, call.flags[i], help);
    option->group("[" + row.key.substr(0, row.key.find('.')) + "]");
    option->take_last();
    if (row.type == "integer") option->type_name("INT");
    if (row.type == "number") option->type_name("NUMBER");
    call.flag_options.push_back(option);
  }
}

}  // namespace

void AddTrain(CLI::App& app, CommonOptions& common) {
  auto call = std::make_shared<TrainCall>();
  app.add_option("RUN", call->run, "Run directory; created if missing");
  app.add_option(
      "--preset", call->preset,
      "Where all values start: " + Join(ModelConfig::PresetNames(), ", ") + "; default: tiny");
  app.add_option("--config", call->config, "TOML file with options");
  app.add_option("--set", call->sets, "An option as key=value; may be given several times")
      ->take_all()
      ->allow_extra_args(false);
  app.add_flag("--resume", call->resume, "Resume from the newest checkpoint of RUN");
  app.add_option("--force", call->forced,
                 "Allow a resumed run to differ in this option; may be given several times")
      ->take_all()
      ->allow_extra_args(false);
  app.add_option("--pipeline", call->pipeline,
                 "On several ranks: stages of consecutive blocks, one per rank; with R ranks there "
                 "are R / S copies that share the batch")
      ->capture_default_str()
      ->check(WholeNumber(1, 1 << 20));
  app.add_option("--cuts", call->cuts,
                 "The last block of each stage but the last, as in 12,24,36; default: balanced by "
                 "measured costs");
  app.add_option("--watchdog", call->watchdog,
                 "On several ranks: end all where one has waited this many seconds for another")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_flag("--dry-run", call->dry_run,
               "Show model, memory, tokens, steps and estimated time, and exit");
  app.add_flag("--print-options", call->print_options, "Print all options as Markdown and exit");
  AddTableFlags(app, *call);
  app.footer(
      "Values: preset < --config < --set < flags. SIGINT (Ctrl-C) and SIGTERM finish the step,\n"
      "save, and end with status 130. On several hosts: mpirun -n R denseformer train ...\n"
      "Examples:\n"
      "  denseformer train runs/a --preset tiny --data data/ --dwa 4x5\n"
      "  denseformer train runs/a --resume\n"
      "  denseformer train runs/b --init runs/a --data data/ --dwa 4x5\n"
      "  denseformer train --preset paper-48 --data data/ --dry-run\n"
      "  denseformer train runs/b --config run.toml --set optimizer.lr=6e-4 --seed 2");
  SetWork(app, common, call, [&common](const TrainCall& c) { RunTrain(c, common); });
}

}  // namespace denseformer
