// The studies of the paper on trained models. A study is a JSON object, so that it can be kept
// beside the run, read by scripts, and drawn later; charts, tables and sentences are made from it.
// docs/analysis.md describes what each computes and its keys; CheckStudy (study_check.h) is what
// the functions below rely on.
#ifndef DENSEFORMER_ANALYSIS_STUDY_H_
#define DENSEFORMER_ANALYSIS_STUDY_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "analysis/run_data.h"
#include "analysis/study_check.h"
#include "chart/chart.h"
#include "model/model.h"

namespace denseformer {

using StudyJson = nlohmann::ordered_json;

struct StudyOptions {
  std::string data;          // directory with val.bin; empty: the run's own (train.toml)
  int64_t tokens = 1 << 16;  // of the validation stream, for cosine and pruning
  std::vector<double> percents = {0, 1, 2, 5, 10, 15, 20, 30, 40, 50};  // of pruning
};

// One study of one run. Throws kInvalid where the run has nothing to study (no averages, no
// snapshots), saying why.
StudyJson RunStudy(const std::string& name, const RunData& run, const StudyOptions& options);

// Whether a run can have this study at all; `all` leaves out those that it cannot.
bool CanStudy(const std::string& name, const RunData& run);

// One study of one or more runs, for drawing.
struct NamedStudy {
  std::string run;
  StudyJson json;
  int colour = -1;  // of the run in charts with several
};

// Mean and standard error of the studies "weights" of several runs. Throws kInvalid where depths or
// patterns differ.
StudyJson MeanWeights(const std::vector<NamedStudy>& studies);

// Charts of the same study of several runs: curves together, heat maps one a run.
std::vector<Chart> StudyCharts(const std::vector<NamedStudy>& studies);

// Of the study "evolution": at each snapshot the mean size of the weights on outputs other than the
// module's own block's.
std::vector<double> MeanOlderSizes(const StudyJson& evolution);

// The numbers as a table.
std::string StudyCsv(const StudyJson& study);

// What the numbers show, in words made from them.
std::vector<std::string> StudySentences(const StudyJson& study);

}  // namespace denseformer

#endif  // DENSEFORMER_ANALYSIS_STUDY_H_
