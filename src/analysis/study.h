// The studies of the paper on trained models. A study is a JSON object, so that it can be kept
// beside the run, read by scripts, and drawn later; charts, tables and sentences are made from it.
//
//   weights    {"study", "runs": [names], "depth", "pattern", "mean": [[..]], "standard_error":
//   [[..]]} evolution  {"study", "depth", "pattern", "steps": [..], "modules": {"I": [[weights at
//   each step]]}, "sources": {"I": [..]}} cosine     {"study", "tokens", "cosine": [..], "norm_x":
//   [..], "norm_y": [..]}        index: depth 0..d pruning    {"study", "tokens", "percent": [..],
//   "pruned": [..], "loss": [..], "perplexity": [..]} spectra    {"study", "groups": [{"name",
//   "matrices", "values": [..]}]} sources    {"study", "modules": [{"block", "sources": [{"source",
//   "weight", "share"}]}]}
// mean[i][j] is null where the module after block i does not read X_j.
#ifndef DENSEFORMER_ANALYSIS_STUDY_H_
#define DENSEFORMER_ANALYSIS_STUDY_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "analysis/chart.h"
#include "analysis/run_data.h"
#include "model/model.h"

namespace denseformer {

using StudyJson = nlohmann::ordered_json;

// All names, in the order in which they are shown.
inline constexpr const char* kStudies[] = {"weights", "evolution", "sources",
                                           "cosine",  "pruning",   "spectra"};

struct StudyOptions {
  std::string data;          // directory with val.bin; empty: the run's own (train.toml)
  int64_t tokens = 1 << 16;  // of the validation stream, for cosine and pruning
  std::vector<double> percents = {0, 1, 2, 5, 10, 15, 20, 30, 40, 50};  // of pruning
};

// One study of one run. Throws kInvalid where the run has nothing to study (no averages, no
// snapshots), saying why.
StudyJson RunStudy(const std::string& name, const RunData& run, const StudyOptions& options);

// The weights of several runs of one pattern together.
StudyJson MeanWeightsStudy(const std::vector<RunData>& runs);

// Whether a run can have this study at all; `all` leaves out those that it cannot.
bool CanStudy(const std::string& name, const RunData& run);

// One study of one or more runs, for drawing.
struct NamedStudy {
  std::string run;
  StudyJson json;
};

// Charts of the same study of several runs: curves together, heat maps one a run.
std::vector<Chart> StudyCharts(const std::vector<NamedStudy>& studies);

// The numbers as a table.
std::string StudyCsv(const StudyJson& study);

// What the numbers show, in words made from them.
std::vector<std::string> StudySentences(const StudyJson& study);

}  // namespace denseformer

#endif  // DENSEFORMER_ANALYSIS_STUDY_H_
