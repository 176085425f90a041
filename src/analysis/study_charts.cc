// Charts of studies.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

#include "analysis/study.h"
#include "base/error.h"

namespace denseformer {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::vector<double> Numbers(const StudyJson& json, const char* key) {
  std::vector<double> values;
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array()) {
    Throw(ErrorCode::kCorrupt, "analysis file: study '{}' has no list '{}'",
          json.value("study", "?"), key);
  }
  for (const StudyJson& value : *found)
    values.push_back(value.is_number() ? value.get<double>() : kNone);
  return values;
}

std::vector<std::vector<double>> Matrix(const StudyJson& json, const char* key) {
  std::vector<std::vector<double>> rows;
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array()) return rows;
  for (const StudyJson& row : *found) {
    std::vector<double>& values = rows.emplace_back();
    for (const StudyJson& value : row)
      values.push_back(value.is_number() ? value.get<double>() : kNone);
  }
  return rows;
}

std::vector<double> Depths(size_t n) {
  std::vector<double> depths(n);
  for (size_t i = 0; i < n; ++i) depths[i] = static_cast<double>(i);
  return depths;
}

std::string Slug(const std::string& text) {
  std::string slug;
  for (char c : text) slug += std::isalnum(static_cast<unsigned char>(c)) ? c : '-';
  return slug;
}

std::vector<Chart> WeightCharts(const std::vector<NamedStudy>& studies) {
  std::vector<Chart> charts;
  for (const NamedStudy& study : studies) {
    HeatMap map;
    map.id = "weights-" + Slug(study.run);
    const size_t runs = study.json.value("runs", StudyJson::array()).size();
    map.title = fmt::format("Depth weights of {}{}", study.run,
                            runs > 1 ? fmt::format(", mean of {} runs", runs) : "");
    map.description =
        "Heat map of the weights of the depth-weighted averages: a row for each module, a column "
        "for each earlier "
        "output that it reads. Blue is negative, orange positive, neutral zero.";
    map.x_label = "source X_j";
    map.y_label = "after block";
    map.values = Matrix(study.json, "mean");
    if (runs > 1) map.errors = Matrix(study.json, "standard_error");
    charts.push_back(map);
  }
  return charts;
}

// A few modules spread over the depth, each as a chart of its largest weights over the steps.
std::vector<Chart> EvolutionCharts(const std::vector<NamedStudy>& studies) {
  constexpr size_t kModules = 3, kLines = 8;
  std::vector<Chart> charts;
  for (const NamedStudy& study : studies) {
    const std::vector<double> steps = Numbers(study.json, "steps");
    const StudyJson modules = study.json.value("modules", StudyJson::object());
    std::vector<int> blocks;
    for (const auto& [block, weights] : modules.items()) blocks.push_back(std::stoi(block));
    std::sort(blocks.begin(), blocks.end());
    for (size_t k = 0; k < std::min(kModules, blocks.size()); ++k) {
      const int block =
          blocks[blocks.size() <= kModules ? k : (k + 1) * blocks.size() / kModules - 1];
      const std::string key = std::to_string(block);
      const std::vector<std::vector<double>> weights = Matrix(modules, key.c_str());
      const std::vector<double> sources = Numbers(study.json["sources"], key.c_str());
      LineChart chart;
      chart.id = fmt::format("evolution-{}-{}", Slug(study.run), block);
      chart.title = fmt::format("Weights after block {} of {} during training", block, study.run);
      chart.description =
          "Lines of the largest weights of one depth-weighted average against the training step.";
      chart.x_label = "step";
      chart.y_label = "weight";
      std::vector<size_t> order(sources.size());
      for (size_t s = 0; s < order.size(); ++s) order[s] = s;
      std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        return std::abs(weights.back()[a]) > std::abs(weights.back()[b]);
      });
      order.resize(std::min(order.size(), kLines));
      std::sort(order.begin(), order.end());
      for (size_t s : order) {
        Series series{fmt::format("X_{:.0f}", sources[s]), {}, {}, {}};
        for (size_t t = 0; t < weights.size() && t < steps.size(); ++t) {
          series.x.push_back(steps[t]);
          series.y.push_back(weights[t][s]);
        }
        chart.series.push_back(std::move(series));
      }
      charts.push_back(chart);
    }
  }
  return charts;
}

// One line a run.
LineChart Together(const std::vector<NamedStudy>& studies, const char* id, const char* title,
                   const char* description, const char* x_label, const char* y_label,
                   const char* x_key, const char* y_key) {
  LineChart chart{id, title, description, x_label, y_label, {}, false};
  for (const NamedStudy& study : studies) {
    Series series{study.run, {}, Numbers(study.json, y_key), {}};
    series.x = x_key == nullptr ? Depths(series.y.size()) : Numbers(study.json, x_key);
    chart.series.push_back(std::move(series));
  }
  return chart;
}

std::vector<Chart> CosineCharts(const std::vector<NamedStudy>& studies) {
  return {Together(studies, "cosine", "Cosine similarity of Y_i with the embedding",
                   "Mean cosine similarity between what each depth passes on and the token "
                   "embedding, a line for each run.",
                   "depth i", "cosine with X_0", nullptr, "cosine"),
          Together(studies, "norm-x", "Norm of the block outputs X_i",
                   "Mean norm of each block output, a line for each run.", "depth i", "norm of X_i",
                   nullptr, "norm_x"),
          Together(studies, "norm-y", "Norm of Y_i, what the next block reads",
                   "Mean norm of what each block reads, a line for each run.", "depth i",
                   "norm of Y_i", nullptr, "norm_y")};
}

std::vector<Chart> PruningCharts(const std::vector<NamedStudy>& studies) {
  LineChart chart = Together(
      studies, "pruning", "Perplexity against the share of pruned depth weights",
      "Perplexity after setting the smallest weights of the averages to zero, a line for each run.",
      "pruned weights, %", "perplexity", "percent", "perplexity");
  chart.log_y = true;
  return {chart};
}

std::vector<Chart> SpectraCharts(const std::vector<NamedStudy>& studies) {
  std::vector<Chart> charts;
  if (studies.empty()) return charts;
  const size_t groups = studies.front().json.value("groups", StudyJson::array()).size();
  for (size_t g = 0; g < groups; ++g) {
    LineChart chart;
    chart.id = fmt::format("spectra-{}", g);
    for (const NamedStudy& study : studies) {
      if (study.json["groups"].size() <= g) continue;
      const StudyJson& group = study.json["groups"][g];
      chart.title = "Singular values: " + group.value("name", "");
      Series series{study.run, {}, Numbers(group, "values"), {}};
      series.x = Depths(series.y.size());
      chart.series.push_back(std::move(series));
    }
    chart.description = "Sorted singular values, averaged over the blocks, a line for each run.";
    chart.x_label = "number";
    chart.y_label = "singular value";
    chart.log_y = true;
    charts.push_back(chart);
  }
  return charts;
}

std::vector<Chart> SourceCharts(const std::vector<NamedStudy>& studies) {
  std::vector<Chart> charts;
  for (const NamedStudy& study : studies) {
    HeatMap map;
    map.id = "sources-" + Slug(study.run);
    map.title = "What each depth relies on in " + study.run;
    map.description =
        "Heat map of the share that each source has in the average after a block: size of its "
        "weight times the norm of "
        "the source, over the sum of the module.";
    map.x_label = "source X_j";
    map.y_label = "after block";
    const size_t n = study.json.value("depth", size_t{0}) + 1;
    map.values.assign(n, std::vector<double>(n, kNone));
    for (const StudyJson& module : study.json.value("modules", StudyJson::array())) {
      for (const StudyJson& source : module["sources"]) {
        const size_t i = module.value("block", size_t{0}), j = source.value("source", size_t{0});
        if (i < n && j < n) map.values[i][j] = source.value("share", kNone);
      }
    }
    charts.push_back(map);
  }
  return charts;
}

}  // namespace

std::vector<Chart> StudyCharts(const std::vector<NamedStudy>& studies) {
  if (studies.empty()) return {};
  const std::string name = studies.front().json.value("study", "");
  if (name == "weights") return WeightCharts(studies);
  if (name == "evolution") return EvolutionCharts(studies);
  if (name == "sources") return SourceCharts(studies);
  if (name == "cosine") return CosineCharts(studies);
  if (name == "pruning") return PruningCharts(studies);
  if (name == "spectra") return SpectraCharts(studies);
  Throw(ErrorCode::kCorrupt, "analysis of {}: unknown study '{}'", studies.front().run, name);
}

}  // namespace denseformer
