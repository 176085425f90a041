// What the studies share: numbers to JSON and back, loading, CSV columns, charts of several runs.
#ifndef DENSEFORMER_ANALYSIS_STUDY_TOOLS_H_
#define DENSEFORMER_ANALYSIS_STUDY_TOOLS_H_

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "analysis/depth_weights.h"
#include "analysis/study.h"
#include "model/mixer_spec.h"
#include "model/model.h"

namespace denseformer {

inline constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

// JSON has no NaN: such a value is null.
StudyJson ToJson(double value);
StudyJson ToJson(const std::vector<double>& values);
StudyJson ToJson(const DepthMatrix& matrix);

double Value(const StudyJson& value);  // NaN for null
std::vector<double> Values(const StudyJson& list);
std::vector<std::vector<double>> Matrix(const StudyJson& rows);

// The model of a run in fp32: a study looks at the weights as they are stored.
Model LoadForStudy(const RunData& run);
std::string ValidationPath(const RunData& run, const StudyOptions& options);

inline bool AnyRun(const RunData&) { return true; }
// One number per module and source (docs/mixers.md).
inline bool HasAverages(const RunData& run) {
  return run.config.dwa != "none" && ParseMixer(run.config).plain();
}
// Weights that do not depend on the token.
inline bool HasStaticWeights(const RunData& run) {
  return run.config.dwa != "none" && ParseMixer(run.config).kind() == MixerKind::kStatic;
}

std::string CsvNumber(const StudyJson& value);  // "" for null
// Lists of equal length as columns, after a column of row numbers named `index` unless it is empty.
std::string CsvColumns(const StudyJson& json, const std::string& index,
                       const std::vector<std::string>& keys);

// "1 module", "12 modules"
std::string ModuleCount(size_t count);

// first, first + 1, ...
std::vector<double> CountUp(size_t n, double first);

// At most as many points as can be told apart, both ends included.
Series Thinned(Series series);

// A unique identifier for each run, of letters, digits and hyphens.
std::vector<std::string> Slugs(const std::vector<NamedStudy>& studies);

// A heat map of modules by the outputs that they read: values[i][j] of X_j after block i. A block's
// own output has a weight near 1, next to which all others would look like zero, so the largest
// value of an older output ends the color scale.
HeatMap SourceMap(std::string id, std::string title, std::vector<std::vector<double>> values);

// Fills in one line per run: `y_key` against `x_key`, or against 0, 1, ... where that is null.
LineChart OneLinePerRun(const std::vector<NamedStudy>& studies, LineChart chart, const char* x_key,
                        const char* y_key);

}  // namespace denseformer

#endif  // DENSEFORMER_ANALYSIS_STUDY_TOOLS_H_
