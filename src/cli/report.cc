// denseformer report: one HTML page about several runs.
#include "analysis/report.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "analysis/study.h"
#include "analysis/tradeoff.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/output_file.h"
#include "base/signal.h"
#include "base/text.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/output.h"
#include "denseformer/generator.h"

namespace denseformer {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::vector<std::string> runs, benches;
  std::string out = "report.html";
  std::string svg;
  std::string prompt;
  int sample_tokens = 80;
  bool no_samples = false;
  bool watch = false;
  int every = 5;  // seconds
};

// A short text from each run that can make one.
std::vector<Sample> MakeSamples(const std::vector<RunData>& runs, const Options& options) {
  std::vector<Sample> samples;
  for (const RunData& run : runs) {
    if (!FileExists(run.path + "/tokenizer.json") || !FileExists(run.path + "/model.safetensors")) {
      LogInfo("{}: no sample (the run has no tokenizer or no weights)", run.name);
      continue;
    }
    GenerateOptions generate;
    generate.max_tokens = options.sample_tokens;
    generate.sampling.temperature = 0.8;
    generate.sampling.top_k = 40;
    Generator generator(LanguageModel::Load(run.path));
    samples.push_back(
        {run.name, options.prompt, generator.Generate(options.prompt, generate).text});
  }
  return samples;
}

// Cheap studies are always shown as they are now.
void RefreshStudies(RunData& run) {
  for (const Study* study : Studies()) {
    if (!study->always_fresh) continue;
    const bool fresh =
        run.studies.contains(study->name) &&
        std::find(run.outdated.begin(), run.outdated.end(), study->name) == run.outdated.end();
    if (!fresh && study->available(run) && FileExists(run.path + "/model.safetensors"))
      run.studies[study->name] = study->run(run, {});
    std::erase(run.outdated, study->name);
  }
  if (!run.outdated.empty()) {
    LogWarning("{}: the weights are newer than the studies {}; run denseformer analyze again",
               run.name, Join(run.outdated, ", "));
  }
}

std::vector<nlohmann::ordered_json> ReadBenches(const std::vector<std::string>& paths,
                                                const std::vector<RunData>& runs) {
  std::vector<nlohmann::ordered_json> benches;
  for (const std::string& path : paths) {
    const auto json =
        nlohmann::ordered_json::parse(ReadFile(path), nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("rows")) {
      Throw(ErrorCode::kInvalid, "{}: expected the output of denseformer bench ... --json", path);
    }
    if (std::none_of(runs.begin(), runs.end(),
                     [&](const RunData& run) { return HasSpeedOf(json, run); })) {
      LogWarning("{}: has no whole pass of the width, depth and pattern of a run; it adds nothing",
                 path);
    }
    benches.push_back(json);
  }
  return benches;
}

// Writes every chart and the table; the number of charts.
size_t WriteSvgFiles(const std::string& directory, const ReportInput& input) {
  size_t charts = 0;
  MakeOutputDirectory(directory);
  for (const Chart& chart : ReportCharts(input)) {
    WriteFileAtomic(directory + "/" + ChartId(chart) + ".svg", DrawSvg(chart, /*standalone=*/true));
    ++charts;
  }
  WriteFileAtomic(directory + "/runs.csv", ReportCsv(input.runs));
  return charts;
}

bool Finished(const std::vector<RunData>& runs) {
  return std::all_of(runs.begin(), runs.end(),
                     [](const RunData& run) { return run.summary.is_object(); });
}

// Tells whether studies are still those of the weights and snapshots in the run.
struct Version {
  fs::file_time_type weights = {};
  uintmax_t snapshots = 0;  // bytes
  bool operator==(const Version&) const = default;
};
Version VersionOf(const RunData& run) {
  std::error_code missing;
  return {fs::last_write_time(run.path + "/model.safetensors", missing),
          fs::file_size(run.path + "/alphas.jsonl", missing)};
}

// Rewrites the page until all runs are finished or a signal comes. The page reloads itself.
void Watch(const Options& options, ReportInput input) {
  InterruptScope scope;
  input.refresh = options.every;
  std::string written;
  std::vector<Version> versions;
  for (const RunData& run : input.runs) versions.push_back(VersionOf(run));
  while (!Finished(input.runs)) {
    const std::string page = MakeReport(input);
    if (page != written) WriteFileAtomic(options.out, page);
    if (written.empty()) {
      LogInfo("watching {} run{}; the page updates every {} seconds until they are finished",
              input.runs.size(), input.runs.size() == 1 ? "" : "s", options.every);
    }
    written = page;
    const auto next = std::chrono::steady_clock::now() + std::chrono::seconds(options.every);
    while (std::chrono::steady_clock::now() < next && !Interrupted())
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (Interrupted()) return;
    std::vector<RunData> runs = ReadRuns(options.runs);
    for (size_t r = 0; r < runs.size(); ++r) {
      const Version version = VersionOf(runs[r]);
      if (version == versions[r]) runs[r].studies = input.runs[r].studies;
      versions[r] = version;
      RefreshStudies(runs[r]);
    }
    input.runs = std::move(runs);
  }
}

// The page goes to stdout (-), a device or a pipe instead of a file.
bool ToStream(const Options& options) { return options.out == "-" || IsStream(options.out); }

void WritePage(const Options& options, const std::string& page) {
  if (options.out == "-") {
    WriteStdout(page);
  } else {
    WriteOutputFile(options.out, page);
  }
}

void Report(const Options& options, const CommonOptions& common) {
  if (options.watch && ToStream(options)) {
    Throw(ErrorCode::kUsage,
          "report --watch: --output {} is not a file that a browser could reload", options.out);
  }
  RequireWritable(options.out);
  ReportInput input;
  input.runs = ReadRuns(options.runs);
  input.benches = ReadBenches(options.benches, input.runs);
  for (RunData& run : input.runs) RefreshStudies(run);
  const std::string path = fs::absolute(options.out).lexically_normal().string();
  if (options.watch && !Finished(input.runs)) {
    if (!common.json) {
      Print("{}\n", path);
      FlushStdout();
    }
    Watch(options, input);
    input.runs = ReadRuns(options.runs);
    for (RunData& run : input.runs) RefreshStudies(run);
  }
  if (!options.no_samples) input.samples = MakeSamples(input.runs, options);
  WritePage(options, MakeReport(input));
  const size_t charts = options.svg.empty() ? 0 : WriteSvgFiles(options.svg, input);
  if (ToStream(options)) return;  // where the path could get into the page
  if (common.json) {
    PrintJson({{"report", path}, {"runs", input.runs.size()}, {"svg_files", charts}});
  } else if (!options.watch) {
    Print("{}\n", path);
  }
}

}  // namespace

void AddReport(CLI::App& app, CommonOptions& common) {
  auto options = std::make_shared<Options>();
  app.add_option("RUN", options->runs, "Run directories")->required();
  AddOutput(app, options->out, "The page to write; -: stdout")
      ->check(FileToWrite())
      ->capture_default_str();
  app.add_option("--svg", options->svg,
                 "Also write every chart as SVG, and the table as CSV, to this directory");
  app.add_option("--bench", options->benches,
                 "Results of denseformer bench forward/train --json, for the trade-offs");
  app.add_option("--prompt", options->prompt, "Prompt of the sample texts");
  app.add_option("--sample-tokens", options->sample_tokens, "Length of the sample texts")
      ->check(WholeNumber(1, 1 << 20))
      ->capture_default_str();
  app.add_flag("--no-samples", options->no_samples, "Do not generate samples");
  app.add_flag("--watch", options->watch,
               "Rewrite the page while the runs are trained; the open page updates itself. Ends "
               "when all runs are finished, or by Ctrl-C");
  app.add_option("--every", options->every, "Seconds between updates with --watch")
      ->check(WholeNumber(1, 86400))
      ->capture_default_str();
  app.footer(
      "Shows what denseformer analyze has left in RUN/analysis; the page needs no network.\n"
      "Examples:\n"
      "  denseformer report runs/tiny-none runs/tiny-1x1 runs/tiny-4x5 -o report.html\n"
      "  denseformer report runs/* --svg figures --bench forward.json --prompt 'In the beginning'\n"
      "  denseformer report runs/now --watch");
  SetWork(app, common, options, [&common](const Options& o) { Report(o, common); });
}

}  // namespace denseformer
