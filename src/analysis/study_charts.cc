// Charts of studies.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

#include "analysis/study.h"
#include "base/error.h"
#include "chart/svg.h"

namespace denseformer {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::vector<double> Numbers(const StudyJson& list) {
  std::vector<double> values;
  for (const StudyJson& value : list)
    values.push_back(value.is_number() ? value.get<double>() : kNone);
  return values;
}

std::vector<std::vector<double>> Matrix(const StudyJson& rows) {
  std::vector<std::vector<double>> values;
  for (const StudyJson& row : rows) values.push_back(Numbers(row));
  return values;
}

std::vector<double> CountUp(size_t n, double first) {
  std::vector<double> numbers(n);
  for (size_t i = 0; i < n; ++i) numbers[i] = first + static_cast<double>(i);
  return numbers;
}

// At most kMostPoints points, both ends among them: more cannot be seen.
Series Thinned(Series series) {
  constexpr size_t kMostPoints = 160;
  const size_t n = series.x.size();
  if (n <= kMostPoints) return series;
  Series thin{series.name, {}, {}, series.colour};
  for (size_t k = 0; k < kMostPoints; ++k) {
    const size_t i = k * (n - 1) / (kMostPoints - 1);
    thin.x.push_back(series.x[i]);
    thin.y.push_back(series.y[i]);
  }
  return thin;
}

// Letters and digits of the names, made unique by a number where that is needed.
std::vector<std::string> Slugs(const std::vector<NamedStudy>& studies) {
  std::vector<std::string> slugs;
  for (const NamedStudy& study : studies) {
    std::string slug;
    for (char c : study.run) slug += std::isalnum(static_cast<unsigned char>(c)) ? c : '-';
    const std::string base = slug;
    for (int n = 2; std::find(slugs.begin(), slugs.end(), slug) != slugs.end(); ++n)
      slug = fmt::format("{}-{}", base, n);
    slugs.push_back(slug);
  }
  return slugs;
}

// Where the colours end: a block's own output has a weight near 1, which must not make all others
// look like zero, so the scale ends at the largest value of an older output.
double LimitOfOlder(const std::vector<std::vector<double>>& weights) {
  double own = 0, older = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    for (size_t j = 0; j < weights[i].size(); ++j) {
      if (!std::isfinite(weights[i][j])) continue;
      double& largest = i == j ? own : older;
      largest = std::max(largest, std::abs(weights[i][j]));
    }
  }
  return std::max(older, 0.01 * own);
}

std::vector<Chart> WeightCharts(const std::vector<NamedStudy>& studies) {
  std::vector<Chart> charts;
  const std::vector<std::string> slugs = Slugs(studies);
  for (size_t n = 0; n < studies.size(); ++n) {
    const NamedStudy& study = studies[n];
    HeatMap map;
    map.id = "weights-" + slugs[n];
    const size_t runs = study.json.at("runs").size();
    map.title = fmt::format("Depth weights: {}{}", study.run,
                            runs > 1 ? fmt::format(", mean of {} runs", runs) : "");
    map.description =
        "Heat map of the weights of the depth-weighted averages: a row for each module, a column "
        "for each output that it reads, 0 for the embedding. Blue is negative, orange positive.";
    map.x_label = "output that is read (0: embedding)";
    map.y_label = map.row_word = "after block";
    map.column_word = "output";
    map.values = Matrix(study.json.at("mean"));
    map.limit = LimitOfOlder(map.values);
    if (runs > 1) map.errors = Matrix(study.json.at("standard_error"));
    charts.push_back(map);
  }
  return charts;
}

// The weights of one module on older outputs over the steps, the largest at the end.
LineChart ModuleChart(const NamedStudy& study, const std::string& slug, int block) {
  constexpr size_t kLines = 8;
  const std::string key = std::to_string(block);
  const std::vector<double> steps = Numbers(study.json.at("steps")),
                            sources = Numbers(study.json.at("sources").at(key));
  const std::vector<std::vector<double>> weights = Matrix(study.json.at("modules").at(key));
  LineChart chart;
  chart.id = fmt::format("evolution-{}-{}", slug, block);
  chart.title = fmt::format("Weights on older outputs after block {}: {}", block, study.run);
  chart.description = fmt::format(
      "The largest weights of one depth-weighted average on the outputs before block {}, against "
      "the training step.",
      block);
  chart.x_label = "step";
  chart.y_label = "weight";
  std::vector<size_t> order;
  for (size_t s = 0; s < sources.size(); ++s) {
    if (sources[s] != block || sources.size() == 1) order.push_back(s);
  }
  if (weights.empty()) return chart;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::abs(weights.back()[a]) > std::abs(weights.back()[b]);
  });
  order.resize(std::min(order.size(), kLines));
  std::sort(order.begin(), order.end());
  for (size_t s : order) {
    Series series{SourceName(static_cast<int>(sources[s])), steps, {}};
    for (const std::vector<double>& snapshot : weights) series.y.push_back(snapshot[s]);
    chart.series.push_back(Thinned(std::move(series)));
  }
  return chart;
}

// All runs together: how large the weights on older outputs are; then for each run a few modules
// spread over the depth.
std::vector<Chart> EvolutionCharts(const std::vector<NamedStudy>& studies) {
  constexpr size_t kModules = 2;
  LineChart sizes{"evolution",
                  "Mean size of the weights on older outputs",
                  "Mean of the absolute weights of all modules on outputs other than their own "
                  "block's, against the training step, a line for each run.",
                  "step",
                  "mean |weight|",
                  {},
                  false};
  for (const NamedStudy& study : studies) {
    sizes.series.push_back(Thinned(
        {study.run, Numbers(study.json.at("steps")), MeanOlderSizes(study.json), study.colour}));
  }
  std::vector<Chart> charts = {sizes};
  const std::vector<std::string> slugs = Slugs(studies);
  for (size_t n = 0; n < studies.size(); ++n) {
    std::vector<int> blocks;
    for (const auto& [block, weights] : studies[n].json.at("modules").items())
      blocks.push_back(std::stoi(block));
    std::sort(blocks.begin(), blocks.end());
    for (size_t k = 0; k < std::min(kModules, blocks.size()); ++k) {
      const size_t at = blocks.size() <= kModules ? k : (k + 1) * blocks.size() / kModules - 1;
      charts.push_back(ModuleChart(studies[n], slugs[n], blocks[at]));
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
    Series series{study.run, {}, Numbers(study.json.at(y_key)), study.colour};
    series.x = x_key == nullptr ? CountUp(series.y.size(), 0) : Numbers(study.json.at(x_key));
    chart.series.push_back(std::move(series));
  }
  return chart;
}

std::vector<Chart> CosineCharts(const std::vector<NamedStudy>& studies) {
  return {Together(studies, "cosine", "Cosine similarity with the embedding",
                   "Mean cosine similarity of Y, what the next block reads, with the token "
                   "embedding at each depth, a line for each run.",
                   "depth", "cosine", nullptr, "cosine"),
          Together(studies, "norm-x", "Norm of the block outputs X",
                   "Mean norm of each block output, a line for each run.", "depth", "norm of X",
                   nullptr, "norm_x"),
          Together(studies, "norm-y", "Norm of Y, what the next block reads",
                   "Mean norm of what each block reads, a line for each run.", "depth", "norm of Y",
                   nullptr, "norm_y")};
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
  const size_t groups = studies.front().json.at("groups").size();
  for (size_t g = 0; g < groups; ++g) {
    LineChart chart;
    chart.id = fmt::format("spectra-{}", g);
    for (const NamedStudy& study : studies) {
      if (study.json.at("groups").size() <= g) continue;
      const StudyJson& group = study.json.at("groups")[g];
      chart.title = "Singular values: " + group.at("name").get<std::string>();
      Series series{study.run, {}, Numbers(group.at("values")), study.colour};
      series.x = CountUp(series.y.size(), 1);
      chart.series.push_back(Thinned(std::move(series)));
    }
    chart.description =
        "Singular values from the largest to the smallest, averaged over the blocks, a line for "
        "each run.";
    chart.x_label = "number";
    chart.y_label = "singular value";
    chart.log_y = true;
    charts.push_back(chart);
  }
  return charts;
}

std::vector<Chart> SourceCharts(const std::vector<NamedStudy>& studies) {
  std::vector<Chart> charts;
  const std::vector<std::string> slugs = Slugs(studies);
  for (size_t n = 0; n < studies.size(); ++n) {
    HeatMap map;
    map.id = "sources-" + slugs[n];
    map.title = "Shares of the outputs: " + studies[n].run;
    map.description =
        "Heat map of the share that each output has in the average after a block: size of its "
        "weight times its norm, over the sum of the module.";
    map.x_label = "output that is read (0: embedding)";
    map.y_label = map.row_word = "after block";
    map.column_word = "share of output";
    map.diverging = false;
    const size_t size = studies[n].json.at("depth").get<size_t>() + 1;
    map.values.assign(size, std::vector<double>(size, kNone));
    for (const StudyJson& module : studies[n].json.at("modules")) {
      for (const StudyJson& source : module.at("sources")) {
        map.values[module.at("block").get<size_t>()][source.at("source").get<size_t>()] =
            source.at("share").get<double>();
      }
    }
    map.limit = LimitOfOlder(map.values);
    charts.push_back(map);
  }
  return charts;
}

}  // namespace

std::vector<Chart> StudyCharts(const std::vector<NamedStudy>& studies) {
  if (studies.empty()) return {};
  const std::string name = studies.front().json.at("study");
  if (name == "weights") return WeightCharts(studies);
  if (name == "evolution") return EvolutionCharts(studies);
  if (name == "sources") return SourceCharts(studies);
  if (name == "cosine") return CosineCharts(studies);
  if (name == "pruning") return PruningCharts(studies);
  DF_CHECK(name == "spectra");
  return SpectraCharts(studies);
}

}  // namespace denseformer
