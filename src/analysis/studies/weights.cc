// Study "weights": the learned weights of the depth-weighted averages.
#include <fmt/format.h>

#include <cmath>

#include "analysis/study_tools.h"
#include "chart/svg.h"

namespace denseformer {
namespace {

StudyJson WeightsJson(const DepthMean& mean, const std::vector<std::string>& names,
                      const std::string& pattern) {
  return {{"study", "weights"},        {"runs", names},
          {"depth", mean.mean.depth},  {"pattern", pattern},
          {"mean", ToJson(mean.mean)}, {"standard_error", ToJson(mean.standard_error)}};
}

StudyJson Run(const RunData& run, const StudyOptions&) {
  const DepthMatrix weights = DepthWeights(LoadForStudy(run), run.path);
  return WeightsJson(MeanDepthWeights({weights}, {run.name}), {run.name}, run.config.dwa);
}

StudyJson Mean(const std::vector<NamedStudy>& studies) {
  std::vector<DepthMatrix> matrices;
  std::vector<std::string> names;
  for (const NamedStudy& study : studies) {
    DepthMatrix matrix = EmptyDepthMatrix(study.json.at("depth").get<int>());
    for (int i = 0; i <= matrix.depth; ++i) {
      for (int j = 0; j <= matrix.depth; ++j) {
        const StudyJson& weight = study.json.at("mean")[i][j];
        if (weight.is_number()) matrix.value[i][j] = weight.get<double>();
      }
    }
    matrices.push_back(std::move(matrix));
    names.push_back(study.run);
  }
  return WeightsJson(MeanDepthWeights(matrices, names), names,
                     studies.front().json.value("pattern", ""));
}

void Check(const StudyJson& json, const StudyChecker& checker) {
  const int64_t size = checker.Depth(json) + 1;
  checker.Array(json, "runs");
  for (const char* key : {"mean", "standard_error"}) {
    const StudyJson& rows = checker.Array(json, key);
    if (static_cast<int64_t>(rows.size()) != size)
      checker.Fail(fmt::format("'{}' has {} rows, expected {}", key, rows.size(), size));
    for (const StudyJson& row : rows) checker.Numbers(row, key, size);
  }
}

std::string Csv(const StudyJson& json) {
  std::string csv = "block,source,mean,standard_error\n";
  for (size_t i = 0; i < json["mean"].size(); ++i) {
    for (size_t j = 0; j < json["mean"][i].size(); ++j) {
      if (!json["mean"][i][j].is_number()) continue;
      csv += fmt::format("{},{},{},{}\n", i, j, CsvNumber(json["mean"][i][j]),
                         CsvNumber(json["standard_error"][i][j]));
    }
  }
  return csv;
}

// "X₀ after block 3"
std::string ModulePlace(size_t source, size_t block) {
  return fmt::format("{} after block {}", SourceName(static_cast<int>(source)), block);
}

// How the weight on the embedding changes with depth: the modules that read it, first and last
// third.
std::string EmbeddingSentence(const StudyJson& mean) {
  std::vector<double> weights;
  for (size_t i = 1; i < mean.size(); ++i) {
    const double weight = Value(mean[i][0]);
    if (std::isfinite(weight)) weights.push_back(weight);
  }
  if (weights.empty()) return "No module reads the embedding X₀.";
  const auto mean_of = [&](size_t begin, size_t end) {
    double sum = 0;
    for (size_t i = begin; i < end; ++i) sum += weights[i];
    return ShortNumber(sum / static_cast<double>(end - begin));
  };
  std::string text = fmt::format("{} read the embedding X₀, with a weight of {} on average",
                                 ModuleCount(weights.size()), mean_of(0, weights.size()));
  const size_t third = weights.size() / 3;
  if (third > 0) {
    text += fmt::format(": {} in the first third of the depth, {} in the last", mean_of(0, third),
                        mean_of(weights.size() - third, weights.size()));
  }
  return text + ".";
}

std::vector<std::string> Sentences(const StudyJson& json) {
  double own = 0, others = 0, largest = 0;
  size_t modules = 0, own_count = 0, other_count = 0, negative = 0, largest_i = 0, largest_j = 0;
  const StudyJson& mean = json.at("mean");
  for (size_t i = 1; i < mean.size(); ++i) {
    bool any = false;
    for (size_t j = 0; j <= i; ++j) {
      const double weight = Value(mean[i][j]);
      if (std::isnan(weight)) continue;
      any = true;
      if (j == i) {
        own += weight;
        ++own_count;
        continue;
      }
      others += std::abs(weight);
      negative += weight < 0;
      ++other_count;
      if (std::abs(weight) > std::abs(largest)) {
        largest = weight;
        largest_i = i;
        largest_j = j;
      }
    }
    modules += any;
  }
  if (modules == 0) return {};
  std::string first =
      fmt::format("{} with {} weights", ModuleCount(modules), own_count + other_count);
  if (own_count > 0) {
    first += fmt::format("; the weight on a block's own output is {} on average",
                         ShortNumber(own / static_cast<double>(own_count)));
  }
  std::vector<std::string> sentences = {first + "."};
  if (other_count == 0) return sentences;
  sentences.push_back(fmt::format(
      "Weights on older outputs have a mean magnitude of {}; {:.0f} % of them are negative.",
      ShortNumber(others / static_cast<double>(other_count)),
      100.0 * static_cast<double>(negative) / static_cast<double>(other_count)));
  if (largest != 0) {
    sentences.push_back(fmt::format("The largest of them is {}, on {}.", ShortNumber(largest),
                                    ModulePlace(largest_j, largest_i)));
  }
  sentences.push_back(EmbeddingSentence(mean));
  return sentences;
}

std::vector<Chart> Charts(const std::vector<NamedStudy>& studies) {
  std::vector<Chart> charts;
  const std::vector<std::string> slugs = Slugs(studies);
  for (size_t n = 0; n < studies.size(); ++n) {
    const NamedStudy& study = studies[n];
    const size_t runs = study.json.at("runs").size();
    HeatMap map = SourceMap("weights-" + slugs[n],
                            fmt::format("Depth weights: {}{}", study.run,
                                        runs > 1 ? fmt::format(", mean of {} runs", runs) : ""),
                            Matrix(study.json.at("mean")));
    map.description =
        "Heat map of the weights of the depth-weighted averages: one row per module, one column "
        "per output that it reads, 0 for the embedding. Blue is negative, orange positive.";
    if (runs > 1) map.errors = Matrix(study.json.at("standard_error"));
    charts.push_back(map);
  }
  return charts;
}

}  // namespace

extern const Study kWeightsStudy = {
    .name = "weights",
    .link = "Weights",
    .title = "Depth weights",
    .help =
        "Weights of the depth-weighted average after each block. The color scale ends at the "
        "largest weight on an older output; a block's own output may have more.",
    .always_fresh = true,
    .available = HasAverages,
    .run = Run,
    .check = Check,
    .csv = Csv,
    .sentences = Sentences,
    .charts = Charts,
    .mean = Mean,
};

}  // namespace denseformer
