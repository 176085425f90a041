#include "sweep/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "sweep/studies.h"

namespace denseformer {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// The value at the share `at` of a list.
double AtShare(const std::vector<double>& values, double at) {
  if (values.empty()) return kNone;
  return values[static_cast<size_t>(std::lround(at * static_cast<double>(values.size() - 1)))];
}

double Pruning(const LedgerJson& study, const std::string& argument) {
  const std::vector<double> percents = NumbersOf(study.at("percent")),
                            losses = NumbersOf(study.at("loss"));
  const double wanted = ParseDouble("pruning", argument, 0, 100);
  double rise = kNone, base = kNone;
  for (size_t i = 0; i < percents.size(); ++i) {
    if (percents[i] == 0) base = losses[i];
    if (percents[i] == wanted) rise = losses[i];
  }
  return rise - base;
}

double Cosine(const LedgerJson& study, const std::string& argument) {
  return AtShare(NumbersOf(study.at("cosine")), ParseDouble("cosine", argument, 0, 1));
}

// Between two snapshots on the straight line through them.
double Evolution(const LedgerJson& study, const std::string& argument) {
  const std::vector<double> steps = NumbersOf(study.at("steps")),
                            distances = NumbersOf(study.at("distance"));
  if (steps.empty() || steps.size() != distances.size()) return kNone;
  const double at = ParseDouble("evolution", argument, 0, 1) * steps.back();
  for (size_t i = 1; i < steps.size(); ++i) {
    if (at > steps[i]) continue;
    const double share = std::max(0.0, (at - steps[i - 1]) / (steps[i] - steps[i - 1]));
    return distances[i - 1] + share * (distances[i] - distances[i - 1]);
  }
  return distances.back();
}

double Spectra(const LedgerJson& study, const std::string& argument) {
  if (!study.contains(argument)) return kNone;
  const std::vector<double> values = NumbersOf(study.at(argument));
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return std::log(sum / *std::max_element(values.begin(), values.end()));
}

struct StudyMetric {
  const char* study;
  const char* label;
  double (*compute)(const LedgerJson& study, const std::string& argument);
  double highest;  // of a numeric argument; 0 where it is a name
};
constexpr StudyMetric kStudyMetrics[] = {{"pruning", "rise of the loss", Pruning, 100},
                                         {"cosine", "cosine", Cosine, 1},
                                         {"evolution", "distance", Evolution, 1},
                                         {"spectra", "log evenness", Spectra, 0}};

const StudyMetric* FindStudyMetric(const std::string& metric, std::string& argument) {
  const size_t colon = metric.find(':');
  if (colon == std::string::npos) return nullptr;
  argument = metric.substr(colon + 1);
  for (const StudyMetric& row : kStudyMetrics) {
    if (metric.substr(0, colon) == row.study) return &row;
  }
  return nullptr;
}

}  // namespace

void CheckMetric(const std::string& metric, const std::string& where) {
  if (metric == "loss" || metric == "perplexity") return;
  std::string argument;
  const StudyMetric* found = FindStudyMetric(metric, argument);
  try {
    if (found != nullptr && found->highest > 0) ParseDouble(metric, argument, 0, found->highest);
    if (found != nullptr) return;
  } catch (const Error& error) {
    Throw(ErrorCode::kInvalid, "{}: {}", where, error.what());
  }
  Throw(ErrorCode::kInvalid,
        "{}: got metric '{}', expected loss, perplexity, pruning:PERCENT, cosine:SHARE, "
        "evolution:SHARE or spectra:NAME",
        where, Printable(metric));
}

double MetricOf(const std::string& metric, const LedgerJson& row) {
  if (row.value("status", "") != "finished") return kNone;
  if (metric == "loss" || metric == "perplexity") return row.at(metric).get<double>();
  std::string argument;
  const StudyMetric* found = FindStudyMetric(metric, argument);
  DF_CHECK(found != nullptr);
  const LedgerJson studies = row.value("studies", LedgerJson::object());
  return studies.contains(found->study) ? found->compute(studies[found->study], argument) : kNone;
}

std::string MetricLabel(const std::string& metric) {
  std::string argument;
  const StudyMetric* found = FindStudyMetric(metric, argument);
  return found == nullptr ? metric : found->label;
}

}  // namespace denseformer
