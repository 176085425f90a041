// A study computes something about one trained run: its depth weights, how similar the stream stays
// to the embedding, what pruning costs. Its result is a JSON object, so that it can be stored
// beside the run, read by scripts and drawn later; charts, tables and sentences are made from that
// object. docs/analysis.md describes what each study computes, and the keys of its JSON.
//
// Adding a study: one file in studies/ that defines a Study, and one row in study_table.cc.
#ifndef DENSEFORMER_ANALYSIS_STUDY_H_
#define DENSEFORMER_ANALYSIS_STUDY_H_

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "analysis/run_data.h"
#include "analysis/study_checker.h"
#include "chart/chart.h"

namespace denseformer {

struct StudyOptions {
  std::string data;          // directory with val.bin; empty: the run's own (train.toml)
  int64_t tokens = 1 << 16;  // of the validation stream, for the studies that read it
  std::vector<double> percents = {0, 1, 2, 5, 10, 15, 20, 30, 40, 50};  // of pruning
};

// The result of a study of one run, for charts that show several runs.
struct NamedStudy {
  std::string run;
  StudyJson json;
  int color = -1;  // of the run in charts with several
};

struct Study {
  const char* name;   // on the command line, of the files, and under "study" in the JSON
  const char* link;   // to its section of the report
  const char* title;  // of that section
  const char* help;   // what it shows, in a sentence or two

  bool reads_data = false;    // needs validation tokens (StudyOptions::data and tokens)
  bool always_fresh = false;  // cheap enough that a report computes it itself when it is missing

  // Whether a run can have this study at all; `analyze` without --study leaves out the others.
  bool (*available)(const RunData& run);
  // Throws kInvalid where the run has nothing to study, saying why.
  StudyJson (*run)(const RunData& run, const StudyOptions& options);
  // Throws kCorrupt (through the checker) where `json` lacks the keys and shapes of this study, so
  // that the functions below need not check again.
  void (*check)(const StudyJson& json, const StudyChecker& checker);
  // The numbers as CSV.
  std::string (*csv)(const StudyJson& json);
  // What the numbers show, in words made from them.
  std::vector<std::string> (*sentences)(const StudyJson& json);
  // Charts of several runs: curves share a chart, heat maps are one per run.
  std::vector<Chart> (*charts)(const std::vector<NamedStudy>& studies);
  // Mean and standard error over several runs, or null. Throws kInvalid where the runs differ in
  // depth or pattern.
  StudyJson (*mean)(const std::vector<NamedStudy>& studies) = nullptr;
};

// All studies, in the order in which they are shown.
std::span<const Study* const> Studies();

// Null where there is none of that name.
const Study* FindStudy(const std::string& name);

// Whether `json` is a result of `study`; throws kCorrupt with `where` in the message.
void CheckStudy(const Study& study, const StudyJson& json, const std::string& where);

}  // namespace denseformer

#endif  // DENSEFORMER_ANALYSIS_STUDY_H_
