// denseformer report: one HTML page about several runs.
#include "analysis/report.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "analysis/study.h"
#include "analysis/tradeoff.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
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

// Weights and their evolution cost little to read, so they are always shown as they are now.
void RefreshStudies(RunData& run) {
  for (const char* name : {"weights", "evolution"}) {
    const bool fresh =
        run.studies.contains(name) &&
        std::find(run.outdated.begin(), run.outdated.end(), name) == run.outdated.end();
    if (!fresh && CanStudy(name, run) && FileExists(run.path + "/model.safetensors"))
      run.studies[name] = RunStudy(name, run, {});
    std::erase(run.outdated, name);
  }
  if (!run.outdated.empty()) {
    LogWarning("{}: the weights are newer than the studies {}; run denseformer analyze again",
               run.name, Join(run.outdated, ", "));
  }
}

void Report(const Options& options, const CommonOptions& common) {
  ReportInput input;
  input.runs = ReadRuns(options.runs);
  for (const std::string& path : options.benches) {
    const auto json =
        nlohmann::ordered_json::parse(ReadFile(path), nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("rows")) {
      Throw(ErrorCode::kInvalid, "{}: expected the output of denseformer bench ... --json", path);
    }
    if (std::none_of(input.runs.begin(), input.runs.end(),
                     [&](const RunData& run) { return HasSpeedOf(json, run); })) {
      LogWarning("{}: has no whole pass of the width, depth and pattern of a run; it adds nothing",
                 path);
    }
    input.benches.push_back(json);
  }
  for (RunData& run : input.runs) RefreshStudies(run);
  if (!options.no_samples) input.samples = MakeSamples(input.runs, options);
  WriteFileAtomic(options.out, MakeReport(input));
  size_t charts = 0;
  if (!options.svg.empty()) {
    MakeOutputDirectory(options.svg);
    for (const Chart& chart : ReportCharts(input)) {
      WriteFileAtomic(options.svg + "/" + ChartId(chart) + ".svg",
                      DrawSvg(chart, /*standalone=*/true));
      ++charts;
    }
    WriteFileAtomic(options.svg + "/runs.csv", ReportCsv(input.runs));
  }
  const std::string path = fs::absolute(options.out).lexically_normal().string();
  if (common.json) {
    PrintJson({{"report", path}, {"runs", input.runs.size()}, {"svg_files", charts}});
  } else {
    Print("{}\n", path);
  }
}

}  // namespace

void AddReport(CLI::App& app, CommonOptions& common) {
  auto options = std::make_shared<Options>();
  app.add_option("RUN", options->runs, "Run directories")->required();
  app.add_option("--out,-o", options->out, "The page to write")
      ->check(FileToWrite())
      ->capture_default_str();
  app.add_option("--svg", options->svg,
                 "Also write every chart as SVG, and the table as CSV, to this directory");
  app.add_option("--bench", options->benches,
                 "Results of denseformer bench forward/train --json, for the trade-offs");
  app.add_option("--prompt", options->prompt, "Beginning of the sample texts");
  app.add_option("--sample-tokens", options->sample_tokens, "Length of the sample texts")
      ->check(WholeNumber(1, 1 << 20))
      ->capture_default_str();
  app.add_flag("--no-samples", options->no_samples, "Do not generate samples");
  app.footer(
      "Shows what denseformer analyze has left in RUN/analysis; the page needs no network.\n"
      "Examples:\n"
      "  denseformer report runs/tiny-none runs/tiny-1x1 runs/tiny-4x5 -o report.html\n"
      "  denseformer report runs/* --svg figures --bench forward.json --prompt 'In the beginning'");
  SetWork(app, common, options, [&common](const Options& o) { Report(o, common); });
}

}  // namespace denseformer
