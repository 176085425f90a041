// denseformer analyze: the paper's studies of trained models.
#include <algorithm>
#include <filesystem>
#include <map>
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

std::vector<std::string> StudyNames(bool reads_data_only) {
  std::vector<std::string> names;
  for (const Study* study : Studies()) {
    if (study->reads_data || !reads_data_only) names.push_back(study->name);
  }
  return names;
}

// One row per study for --help.
std::string StudyHelp() {
  std::string text = "Studies:\n";
  for (const Study* study : Studies()) {
    text += fmt::format("  {:<10} {}\n", study->name, study->title);
  }
  return text;
}

// NAME.json, NAME.csv and the charts of one study in a directory.
void Write(const Study& study, const std::string& directory, const std::string& run,
           const StudyJson& json) {
  const std::string file = directory + "/" + study.name;
  MakeOutputDirectory(directory);
  WriteFileAtomic(file + ".json",
                  json.dump(1, ' ', false, StudyJson::error_handler_t::replace) + "\n");
  WriteFileAtomic(file + ".csv", study.csv(json));
  for (const Chart& chart : study.charts({{run, json}})) {
    WriteFileAtomic(directory + "/" + ChartId(chart) + ".svg", DrawSvg(chart, /*standalone=*/true));
  }
}

void PrintStudy(const Study& study, const std::string& run, const StudyJson& json,
                const std::string& directory) {
  Print("{}: {}\n", run, study.name);
  for (const std::string& sentence : study.sentences(json)) Print("  {}\n", sentence);
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
  std::vector<const Study*> studies;
  for (const std::string& name : all ? StudyNames(false) : options.studies)
    studies.push_back(FindStudy(name));
  const std::vector<RunData> runs = ReadRuns(options.runs);
  StudyJson result = {{"studies", StudyJson::array()}};
  std::map<const Study*, std::vector<NamedStudy>> to_average;
  auto keep = [&](const Study& study, const std::string& run, const StudyJson& json,
                  const std::string& directory) {
    Write(study, directory, run, json);
    if (common.json) {
      StudyJson entry = json;
      entry["run"] = run;
      result["studies"].push_back(entry);
    } else {
      PrintStudy(study, run, json, directory);
    }
  };
  for (const RunData& run : runs) {
    const std::string directory = options.out.empty() ? run.path + "/analysis"
                                  : runs.size() == 1  ? options.out
                                                      : options.out + "/" + run.name;
    for (const Study* study : studies) {
      if (all && !study->available(run)) {
        LogInfo("{}: no {} (does not apply to this run)", run.name, study->name);
        continue;
      }
      StudyJson json = study->run(run, options.study);
      keep(*study, run.name, json, directory);
      if (study->mean != nullptr) to_average[study].push_back({run.name, std::move(json)});
    }
  }
  // Means over runs, where they were asked for or make sense.
  const bool same = std::all_of(runs.begin(), runs.end(), [&](const RunData& run) {
    return run.config.dwa == runs[0].config.dwa && run.config.n_layer == runs[0].config.n_layer;
  });
  for (const auto& [study, each] : to_average) {
    if (each.size() > 1 && !options.out.empty() && (same || !all))
      keep(*study, "mean", study->mean(each), options.out + "/mean");
  }
  if (common.json) PrintJson(result);
}

}  // namespace

void AddAnalyze(CLI::App& app, CommonOptions& common) {
  auto options = std::make_shared<Options>();
  std::vector<std::string> names = StudyNames(false);
  names.push_back("all");
  app.add_option("RUN", options->runs, "Run directories")->required();
  app.add_option("--study", options->studies, "Studies to run: " + Join(names, ", "))
      ->delimiter(',')
      ->check(OneOf(names))
      ->capture_default_str();
  AddOutput(app, options->out,
            "Directory for the results; default: RUN/analysis. With several runs of one pattern it "
            "also gets the mean of their weights");
  app.add_option("--data", options->study.data,
                 "Directory with val.bin; default: the data that the run was trained on");
  app.add_option("--tokens", options->study.tokens,
                 "Validation tokens for " + Join(StudyNames(true), ", "))
      ->check(WholeNumber(1, int64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--percents", options->percents,
                 "Shares to prune, separated by commas; default: 0,1,2,5,10,15,20,30,40,50");
  app.footer(StudyHelp() +
             "Each study is written as JSON, CSV and SVG.\n"
             "Examples:\n"
             "  denseformer analyze runs/tiny-1x1\n"
             "  denseformer analyze runs/seed-1 runs/seed-2 --study weights -o analysis\n"
             "  denseformer analyze runs/tiny-4x5 --study pruning --percents 0,10,20,40 --json");
  SetWork(app, common, options, [&common](const Options& o) { Analyze(o, common); });
}

}  // namespace denseformer
