// denseformer analyze: the paper's studies of trained models.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "analysis/study.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/output.h"

namespace denseformer {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::vector<std::string> runs;
  std::vector<std::string> studies = {"all"};
  std::string out;
  std::string percents;
  StudyOptions study;
};

std::vector<std::string> StudyNames() { return {std::begin(kStudies), std::end(kStudies)}; }

// NAME.json, NAME.csv and the charts of one study in a directory.
void Write(const std::string& directory, const std::string& run, const StudyJson& study) {
  const std::string name = study["study"];
  MakeOutputDirectory(directory);
  WriteFileAtomic(directory + "/" + name + ".json",
                  study.dump(1, ' ', false, StudyJson::error_handler_t::replace) + "\n");
  WriteFileAtomic(directory + "/" + name + ".csv", StudyCsv(study));
  for (const Chart& chart : StudyCharts({{run, study}})) {
    WriteFileAtomic(directory + "/" + ChartId(chart) + ".svg", DrawSvg(chart, /*standalone=*/true));
  }
}

void Say(const std::string& run, const StudyJson& study, const std::string& directory) {
  Print("{}: {}\n", run, study["study"].get<std::string>());
  for (const std::string& sentence : StudySentences(study)) Print("  {}\n", sentence);
  Print("  written to {}\n", directory);
}

void Analyze(const Options& given, const CommonOptions& common) {
  Options options = given;
  if (!options.percents.empty()) {
    options.study.percents.clear();
    for (const std::string& part : Split(options.percents, ',')) {
      options.study.percents.push_back(ParseDouble("--percents", part, 0, 100));
    }
  }
  const bool all = options.studies == std::vector<std::string>{"all"};
  const std::vector<std::string> names = all ? StudyNames() : options.studies;
  const std::vector<RunData> runs = ReadRuns(options.runs);
  StudyJson result = {{"studies", StudyJson::array()}};
  auto keep = [&](const std::string& run, const StudyJson& study, const std::string& directory) {
    Write(directory, run, study);
    if (common.json) {
      StudyJson entry = study;
      entry["run"] = run;
      result["studies"].push_back(entry);
    } else {
      Say(run, study, directory);
    }
  };
  for (const RunData& run : runs) {
    const std::string directory = options.out.empty() ? run.path + "/analysis"
                                  : runs.size() == 1  ? options.out
                                                      : options.out + "/" + run.name;
    for (const std::string& name : names) {
      if (all && !CanStudy(name, run)) {
        LogInfo("{}: no {} (nothing of the kind in this run)", run.name, name);
        continue;
      }
      keep(run.name, RunStudy(name, run, options.study), directory);
    }
  }
  // The mean over runs, where it was asked for or where it makes sense.
  const bool weights = std::find(names.begin(), names.end(), "weights") != names.end();
  if (weights && runs.size() > 1 && !options.out.empty()) {
    bool same = true;
    for (const RunData& run : runs) {
      same = same && run.config.dwa == runs[0].config.dwa &&
             run.config.n_layer == runs[0].config.n_layer;
    }
    if (same || !all) {
      std::vector<NamedStudy> each;
      for (const RunData& run : runs)
        each.push_back({run.name, RunStudy("weights", run, options.study)});
      keep("mean", MeanWeights(each), options.out + "/mean");
    }
  }
  if (common.json) PrintJson(result);
}

}  // namespace

void AddAnalyze(CLI::App& app, CommonOptions& common) {
  auto options = std::make_shared<Options>();
  std::vector<std::string> names = StudyNames();
  names.push_back("all");
  app.add_option("RUN", options->runs, "Run directories")->required();
  app.add_option("--study", options->studies, "What to look at: " + Join(names, ", "))
      ->delimiter(',')
      ->check(OneOf(names))
      ->capture_default_str();
  app.add_option("--out,-o", options->out,
                 "Directory for the results; default: RUN/analysis. With several runs of one "
                 "pattern it also gets the mean "
                 "of their weights");
  app.add_option("--data", options->study.data,
                 "Directory with val.bin; default: the data that the run was trained on");
  app.add_option("--tokens", options->study.tokens,
                 "Validation tokens for cosine, sources and pruning")
      ->check(WholeNumber(1, int64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--percents", options->percents,
                 "Shares to prune, separated by commas; default: 0,1,2,5,10,15,20,30,40,50");
  app.footer(
      "Each study is written as JSON, CSV and SVG.\n"
      "Examples:\n"
      "  denseformer analyze runs/tiny-1x1\n"
      "  denseformer analyze runs/seed-1 runs/seed-2 --study weights -o analysis\n"
      "  denseformer analyze runs/tiny-4x5 --study pruning --percents 0,10,20,40 --json");
  SetWork(app, common, options, [&common](const Options& o) { Analyze(o, common); });
}

}  // namespace denseformer
