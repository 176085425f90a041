// Study "evolution": the depth weights at the snapshots of training.
#include "analysis/studies/evolution.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/study_tools.h"
#include "base/error.h"
#include "chart/svg.h"
#include "denseformer/depth_pattern.h"

namespace denseformer {
namespace {

bool Available(const RunData& run) { return HasAverages(run) && !run.alphas.empty(); }

StudyJson Run(const RunData& run, const StudyOptions&) {
  if (!HasAverages(run)) DepthWeights(LoadForStudy(run), run.path);  // throws
  if (run.alphas.empty()) {
    Throw(ErrorCode::kInvalid,
          "{}: no snapshots of the weights (alphas.jsonl); train with log.alphas_every", run.path);
  }
  const DepthPattern pattern = DepthPattern::Parse(run.config.dwa, run.config.n_layer);
  StudyJson json = {
      {"study", "evolution"}, {"depth", run.config.n_layer}, {"pattern", run.config.dwa}};
  json["steps"] = StudyJson::array();
  json["modules"] = StudyJson::object();
  json["sources"] = StudyJson::object();
  for (const AlphaSnapshot& snapshot : run.alphas) {
    json["steps"].push_back(snapshot.step);
    if (static_cast<int>(snapshot.modules.size()) != pattern.module_count()) {
      Throw(ErrorCode::kCorrupt, "{}/alphas.jsonl: step {} has {} modules, expected {}", run.path,
            snapshot.step, snapshot.modules.size(), pattern.module_count());
    }
    for (const auto& [block, weights] : snapshot.modules) {
      if (block > pattern.depth() || weights.size() != pattern.sources(block).size()) {
        Throw(ErrorCode::kCorrupt,
              "{}/alphas.jsonl: step {} has {} weights after block {}, expected {}", run.path,
              snapshot.step, weights.size(), block,
              block > pattern.depth() ? 0 : pattern.sources(block).size());
      }
      json["modules"][std::to_string(block)].push_back(ToJson(weights));
      json["sources"][std::to_string(block)] = pattern.sources(block);
    }
  }
  return json;
}

bool IsBlock(const std::string& key, int64_t depth) {
  const bool number =
      !key.empty() && key.size() < 6 &&
      std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
  return number && std::stoll(key) <= depth;
}

void Check(const StudyJson& json, const StudyChecker& checker) {
  const int64_t depth = checker.Depth(json);
  const StudyJson& steps = checker.Array(json, "steps");
  for (const StudyJson& step : steps) {
    if (!step.is_number_integer()) checker.Fail("'steps' holds something other than integers");
  }
  const StudyJson &modules = checker.Member(json, "modules"),
                  &sources = checker.Member(json, "sources");
  if (!modules.is_object()) checker.Fail("'modules' is not an object");
  for (const auto& [block, snapshots] : modules.items()) {
    const StudyJson& read = checker.Array(sources, block.c_str());
    for (const StudyJson& source : read) {
      if (!source.is_number_integer() || source < 0 || source > depth)
        checker.Fail("'sources' holds something other than numbers of outputs");
    }
    if (!IsBlock(block, depth)) checker.Fail("'modules' has a key that is not a block");
    if (!snapshots.is_array() || snapshots.size() != steps.size()) {
      checker.Fail(
          fmt::format("'modules' has other than {} snapshots of block {}", steps.size(), block));
    }
    for (const StudyJson& weights : snapshots)
      checker.Numbers(weights, "modules", static_cast<int64_t>(read.size()));
  }
}

std::string Csv(const StudyJson& json) {
  std::string csv = "step,block,source,weight\n";
  for (size_t t = 0; t < json["steps"].size(); ++t) {
    for (const auto& [block, snapshots] : json["modules"].items()) {
      for (size_t s = 0; t < snapshots.size() && s < snapshots[t].size(); ++s) {
        csv += fmt::format("{},{},{},{}\n", json["steps"][t].get<int64_t>(), block,
                           json["sources"][block][s].get<int>(), CsvNumber(snapshots[t][s]));
      }
    }
  }
  return csv;
}

std::vector<std::string> Sentences(const StudyJson& json) {
  const std::vector<double> sizes = MeanOlderMagnitudes(json);
  if (sizes.size() < 2 || !(sizes.back() > 0)) return {};
  size_t half = 0;
  while (sizes[half] < 0.5 * sizes.back()) ++half;
  return {
      fmt::format("The mean magnitude of the weights on older outputs goes from {} to {} over {} "
                  "snapshots; half of "
                  "that is reached by step {}.",
                  ShortNumber(sizes.front()), ShortNumber(sizes.back()), sizes.size(),
                  ShortNumber(json.at("steps")[half].get<double>()))};
}

// The weights of one module on older outputs over the steps, the largest at the end.
LineChart ModuleChart(const NamedStudy& study, const std::string& slug, int block) {
  constexpr size_t kLines = 8;
  const std::string key = std::to_string(block);
  const std::vector<double> steps = Values(study.json.at("steps")),
                            sources = Values(study.json.at("sources").at(key));
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

// All runs together: the magnitude of the weights on older outputs; then for each run a few modules
// spread over the depth.
std::vector<Chart> Charts(const std::vector<NamedStudy>& studies) {
  constexpr size_t kModules = 2;
  LineChart sizes{"evolution",
                  "Mean magnitude of the weights on older outputs",
                  "Mean of the absolute weights of all modules on outputs other than their own "
                  "block's, against the training step, one line per run.",
                  "step",
                  "mean |weight|",
                  {},
                  false};
  sizes.shared_legend = true;
  for (const NamedStudy& study : studies) {
    sizes.series.push_back(Thinned(
        {study.run, Values(study.json.at("steps")), MeanOlderMagnitudes(study.json), study.color}));
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

}  // namespace

std::vector<double> MeanOlderMagnitudes(const StudyJson& evolution) {
  std::vector<double> sizes(evolution.at("steps").size());
  for (size_t t = 0; t < sizes.size(); ++t) {
    double sum = 0, count = 0;
    for (const auto& [block, snapshots] : evolution.at("modules").items()) {
      const StudyJson& sources = evolution.at("sources").at(block);
      for (size_t s = 0; s < sources.size(); ++s) {
        if (sources[s].get<int>() == std::stoi(block)) continue;
        sum += std::abs(Value(snapshots[t][s]));
        ++count;
      }
    }
    sizes[t] = count > 0 ? sum / count : 0;
  }
  return sizes;
}

extern const Study kEvolutionStudy = {
    .name = "evolution",
    .link = "Evolution",
    .title = "Evolution of the depth weights",
    .help = "The weights on older outputs during training.",
    .always_fresh = true,
    .available = Available,
    .run = Run,
    .check = Check,
    .csv = Csv,
    .sentences = Sentences,
    .charts = Charts,
};

}  // namespace denseformer
