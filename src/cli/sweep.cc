// denseformer sweep: trains the runs of sweep files that a ledger lacks, and makes tables, charts
// and documents of the ledger.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/parallel.h"
#include "base/signal.h"
#include "base/text.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/output.h"
#include "sweep/charts.h"
#include "sweep/document.h"
#include "sweep/other_runs.h"
#include "sweep/runner.h"

namespace denseformer {
namespace {

struct Options {
  std::vector<std::string> files, data, benches;
  std::string scale, ledger, format = "text", markdown, html, charts, findings;
  RunnerOptions runner;
  bool dry_run = false, no_run = false, retry_failed = false;
};

DataSets ParseData(const std::vector<std::string>& given) {
  DataSets data;
  for (const std::string& text : given) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
      Throw(ErrorCode::kUsage, "--data: got '{}', expected NAME=DIR", text);
    }
    if (!data.emplace(text.substr(0, equals), text.substr(equals + 1)).second) {
      Throw(ErrorCode::kUsage, "--data: '{}' is given twice", text.substr(0, equals));
    }
  }
  return data;
}

Benches ReadBenches(const std::vector<std::string>& paths) {
  Benches benches;
  for (const std::string& path : paths) {
    auto json = nlohmann::ordered_json::parse(ReadFile(path), nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("rows")) {
      Throw(ErrorCode::kInvalid, "{}: expected the output of denseformer bench ... --json", path);
    }
    benches.push_back(std::move(json));
  }
  return benches;
}

// Of all runs together, in jobs that run side by side; NaN where one is not known.
double TotalSeconds(const std::vector<PlannedRun>& runs, int jobs) {
  double seconds = 0;
  for (const PlannedRun& run : runs) seconds += run.seconds;
  return seconds / jobs;
}

std::string DurationText(double seconds) {
  return std::isfinite(seconds) ? HumanDuration(seconds) : "not known yet";
}

void PrintPlan(const std::vector<PlannedRun>& all, std::vector<PlannedRun> missing,
               const Ledger& ledger, const Options& options, bool json) {
  EstimateSeconds(ledger, missing);
  const double total = TotalSeconds(missing, options.runner.jobs);
  if (json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const PlannedRun& run : missing) {
      list.push_back({{"key", run.key},
                      {"name", run.name},
                      {"seconds", std::isfinite(run.seconds) ? nlohmann::ordered_json(run.seconds)
                                                             : nlohmann::ordered_json()}});
    }
    PrintJson({{"runs", all.size()},
               {"missing", list},
               {"seconds",
                std::isfinite(total) ? nlohmann::ordered_json(total) : nlohmann::ordered_json()}});
    return;
  }
  for (const PlannedRun& run : missing) Print("{}  {}\n", run.name, DurationText(run.seconds));
  Print("{} of {} runs are missing; estimated time with {} at a time: {}\n", missing.size(),
        all.size(), options.runner.jobs, DurationText(total));
}

std::string Formatted(const SweepResult& result, const Benches& benches,
                      const std::string& format) {
  const TextTable table = ResultTable(result, benches);
  if (format == "csv") return TableToCsv(table);
  if (format == "markdown") return TableToMarkdown(table);
  std::string text = result.file->title + "\n" + TableToText(table);
  for (const std::string& line : ExchangeLines(result, benches)) text += line + "\n";
  for (const std::string& line : ClaimLines(result)) text += line + "\n";
  return text;
}

void WriteDocuments(const Options& options, const std::vector<SweepFile>& files,
                    const DocumentInput& input) {
  if (!options.markdown.empty()) WriteFileAtomic(options.markdown, DocumentToMarkdown(input));
  if (!options.html.empty()) WriteFileAtomic(options.html, DocumentToHtml(input));
  if (!options.findings.empty()) WriteFileAtomic(options.findings, FindingsToMarkdown(input));
  if (options.charts.empty()) return;
  MakeOutputDirectory(options.charts);
  for (const SweepResult& result : input.results) {
    for (const Chart& chart : SweepCharts(result, input.benches)) {
      WriteFileAtomic(options.charts + "/" + ChartId(chart) + ".svg",
                      DrawSvg(chart, /*standalone=*/true));
    }
  }
}

// The folder of the charts as the Markdown document names it.
std::string ChartLink(const Options& options) {
  if (options.markdown.empty() || options.charts.empty()) return "";
  const std::filesystem::path from = std::filesystem::absolute(options.markdown).parent_path();
  return std::filesystem::absolute(options.charts).lexically_relative(from).generic_string();
}

void Report(const Options& options, const std::vector<SweepFile>& files, const Ledger& ledger,
            bool json) {
  DocumentInput input;
  for (const SweepFile& file : files) input.results.push_back(Summarize(file, ledger));
  input.benches = ReadBenches(options.benches);
  const SweepFile& first = files.front();
  input.title = first.scale_title.empty() ? first.title : first.scale_title;
  input.introduction = first.scale_text;
  input.charts = ChartLink(options);
  const std::vector<const LedgerJson*> others = OtherRuns(ledger, input.results);
  input.other_runs = OtherRunsTable(ledger, others);
  input.other_run_count = static_cast<int>(others.size());
  WriteDocuments(options, files, input);
  if (json || options.format == "json") {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const SweepResult& result : input.results)
      list.push_back(ResultToJson(result, input.benches));
    nlohmann::ordered_json other_keys = nlohmann::ordered_json::array();
    for (const LedgerJson* run : others) other_keys.push_back((*run)["key"]);
    PrintJson({{"sweeps", list}, {"other_runs", other_keys}});
    return;
  }
  for (size_t i = 0; i < input.results.size(); ++i) {
    Print("{}{}", i == 0 ? "" : "\n", Formatted(input.results[i], input.benches, options.format));
  }
  if (options.format == "text" && !others.empty()) {
    Print("\n{} run{} of {} {} in none of these tables; --markdown lists them\n", others.size(),
          others.size() == 1 ? "" : "s", ledger.path(), others.size() == 1 ? "is" : "are");
  }
}

void RequireWritableOutputs(const Options& options) {
  if (options.dry_run) return;
  for (const std::string& path : {options.markdown, options.html, options.findings}) {
    RequireWritable(path);
  }
  if (!options.no_run && !FileExists(options.ledger)) RequireWritable(options.ledger);
}

void Sweep(const Options& given, const CommonOptions& common) {
  RequireWritableOutputs(given);
  Options options = given;
  options.runner.data = ParseData(options.data);
  options.runner.version = DENSEFORMER_VERSION;
  options.runner.threads =
      common.threads > 0 ? common.threads : std::max(1, NumThreads() / options.runner.jobs);
  std::vector<SweepFile> files;
  for (const std::string& path : options.files) {
    files.push_back(ReadSweepFile(path, options.scale));
  }
  Ledger ledger(options.ledger);
  const std::vector<PlannedRun> all = AllRuns(files, options.runner.data);
  const std::vector<PlannedRun> missing = MissingRuns(all, ledger, options.retry_failed);
  if (options.dry_run) {
    PrintPlan(all, missing, ledger, options, common.json);
    return;
  }
  if (!options.no_run) {
    options.runner.program = std::filesystem::read_symlink("/proc/self/exe").string();
    CatchInterrupts();
    RunMissing(missing, options.runner, ledger);
  }
  Report(options, files, ledger, common.json);
}

}  // namespace

void AddSweep(CLI::App& app, CommonOptions& common) {
  auto options = std::make_shared<Options>();
  app.add_option("FILE", options->files, "Sweep files; runs that several name are trained once")
      ->required();
  app.add_option("--ledger", options->ledger, "File of finished runs, one JSON object per line")
      ->required();
  app.add_option("--scale", options->scale, "Scale of the files, where they have several");
  app.add_option("--data", options->data,
                 "A data set as NAME=DIR; may be given several times; needed for what is missing")
      ->take_all()
      ->allow_extra_args(false);
  options->runner.runs = "runs/sweep";
  app.add_option("--runs", options->runner.runs, "Directory of the run directories")
      ->capture_default_str();
  app.add_option("--jobs", options->runner.jobs,
                 "Runs to train side by side, each with --threads (default: cores / jobs)")
      ->check(WholeNumber(1, 1024))
      ->capture_default_str();
  app.add_option("--nice", options->runner.nice, "Nice value of the runs")
      ->check(WholeNumber(0, 19))
      ->capture_default_str();
  app.add_option("--study-tokens", options->runner.study_tokens,
                 "Validation tokens for the studies cosine, sources and pruning")
      ->check(WholeNumber(1, int64_t{1} << 40))
      ->capture_default_str();
  app.add_flag("--remove-runs", options->runner.remove_finished,
               "Remove the directory of a run once it is in the ledger");
  app.add_flag("--retry-failed", options->retry_failed,
               "Train again what failed or diverged; otherwise that is a result");
  app.add_flag("--dry-run", options->dry_run,
               "List the missing runs with estimated time, and exit");
  app.add_flag("--no-run", options->no_run, "Train nothing: report what the ledger has");
  app.add_option("--bench", options->benches,
                 "Results of denseformer bench forward/train --json, for speeds");
  app.add_option("--format", options->format, "Format of the tables on stdout")
      ->check(OneOf({"text", "csv", "markdown", "json"}))
      ->capture_default_str();
  app.add_option("--markdown", options->markdown, "Also write a Markdown document")
      ->check(FileToWrite());
  app.add_option("--html", options->html, "Also write one HTML page")->check(FileToWrite());
  app.add_option("--findings", options->findings,
                 "Also write the claims by verdict as a Markdown document")
      ->check(FileToWrite());
  app.add_option("--charts", options->charts, "Also write every chart as SVG to this directory");
  app.footer(
      "Stop and start it at will: finished runs are kept, others resume from their checkpoints.\n"
      "Examples:\n"
      "  denseformer sweep grid.toml --ledger grid.jsonl --data novels=data/novels --jobs 2\n"
      "  denseformer sweep grid.toml --ledger grid.jsonl --dry-run\n"
      "  denseformer sweep grid.toml --ledger grid.jsonl --no-run --format markdown --charts "
      "figures");
  SetWork(app, common, options, [&common](const Options& o) { Sweep(o, common); });
}

}  // namespace denseformer
