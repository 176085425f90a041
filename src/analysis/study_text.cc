// Tables and sentences of studies.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/study.h"
#include "analysis/svg.h"

namespace denseformer {
namespace {

std::string Cell(const StudyJson& value) {
  return value.is_number() ? fmt::format("{}", value.get<double>()) : "";
}

// Lists of equal length as columns.
std::string Columns(const StudyJson& json, const std::string& index,
                    const std::vector<std::string>& keys) {
  std::string csv = index;
  for (const std::string& key : keys) csv += (csv.empty() ? "" : ",") + key;
  csv += "\n";
  for (size_t i = 0; i < json[keys[0]].size(); ++i) {
    std::string row = index.empty() ? "" : std::to_string(i);
    for (size_t k = 0; k < keys.size(); ++k)
      row += (k == 0 && index.empty() ? "" : ",") + Cell(json[keys[k]][i]);
    csv += row + "\n";
  }
  return csv;
}

std::string WeightsCsv(const StudyJson& json) {
  std::string csv = "block,source,mean,standard_error\n";
  for (size_t i = 0; i < json["mean"].size(); ++i) {
    for (size_t j = 0; j < json["mean"][i].size(); ++j) {
      if (!json["mean"][i][j].is_number()) continue;
      csv += fmt::format("{},{},{},{}\n", i, j, Cell(json["mean"][i][j]),
                         Cell(json["standard_error"][i][j]));
    }
  }
  return csv;
}

std::string EvolutionCsv(const StudyJson& json) {
  std::string csv = "step,block,source,weight\n";
  for (size_t t = 0; t < json["steps"].size(); ++t) {
    for (const auto& [block, snapshots] : json["modules"].items()) {
      for (size_t s = 0; t < snapshots.size() && s < snapshots[t].size(); ++s) {
        csv += fmt::format("{},{},{},{}\n", json["steps"][t].get<int64_t>(), block,
                           json["sources"][block][s].get<int>(), Cell(snapshots[t][s]));
      }
    }
  }
  return csv;
}

std::string SpectraCsv(const StudyJson& json) {
  std::string csv = "group,number,singular_value\n";
  for (const StudyJson& group : json["groups"]) {
    for (size_t k = 0; k < group["values"].size(); ++k) {
      csv +=
          fmt::format("{},{},{}\n", group["name"].get<std::string>(), k, Cell(group["values"][k]));
    }
  }
  return csv;
}

std::string SourcesCsv(const StudyJson& json) {
  std::string csv = "block,source,weight,share\n";
  for (const StudyJson& module : json["modules"]) {
    for (const StudyJson& source : module["sources"]) {
      csv += fmt::format("{},{},{},{}\n", module["block"].get<int>(), source["source"].get<int>(),
                         Cell(source["weight"]), Cell(source["share"]));
    }
  }
  return csv;
}

double Value(const StudyJson& value) {
  return value.is_number() ? value.get<double>() : std::nan("");
}

std::vector<std::string> WeightSentences(const StudyJson& json) {
  // Every module that reads both the embedding and something else.
  double embedding = 0, diagonal = 0, largest = 0, others = 0;
  int modules = 0, with_embedding = 0, negative = 0, weights = 0, other_weights = 0;
  size_t largest_i = 0, largest_j = 0;
  for (size_t i = 1; i < json["mean"].size(); ++i) {
    bool any = false;
    for (size_t j = 0; j <= i; ++j) {
      const double weight = Value(json["mean"][i][j]);
      if (std::isnan(weight)) continue;
      any = true;
      ++weights;
      negative += weight < 0;
      if (j == 0) {
        embedding += weight;
        ++with_embedding;
      }
      if (j == i) {
        diagonal += weight;
      } else {
        others += std::abs(weight);
        ++other_weights;
        if (std::abs(weight) > std::abs(largest)) {
          largest = weight;
          largest_i = i;
          largest_j = j;
        }
      }
    }
    modules += any;
  }
  std::vector<std::string> sentences;
  if (modules == 0) return sentences;
  sentences.push_back(
      fmt::format("{} modules with {} weights: the weight on a block's own output is {} on "
                  "average, the size of the others {}.",
                  modules, weights, ShortNumber(diagonal / modules),
                  ShortNumber(other_weights > 0 ? others / other_weights : 0)));
  if (with_embedding > 0) {
    sentences.push_back(
        fmt::format("{} of the modules read the embedding X_0, with a weight of {} on average.",
                    with_embedding, ShortNumber(embedding / with_embedding)));
  }
  if (largest != 0) {
    sentences.push_back(
        fmt::format("The largest weight on an older output is {}: on X_{} after block {}.",
                    ShortNumber(largest), largest_j, largest_i));
  }
  sentences.push_back(
      fmt::format("{:.0f} % of the weights are negative.", 100.0 * negative / weights));
  return sentences;
}

std::vector<std::string> CosineSentences(const StudyJson& json) {
  const StudyJson& cosine = json["cosine"];
  if (cosine.size() < 2) return {};
  size_t lowest = 0;
  for (size_t i = 0; i < cosine.size(); ++i) {
    if (Value(cosine[i]) < Value(cosine[lowest])) lowest = i;
  }
  const double last = Value(cosine[cosine.size() - 1]);
  return {
      fmt::format("The similarity with the embedding falls to {} at depth {} and is {} at the end.",
                  ShortNumber(Value(cosine[lowest])), lowest, ShortNumber(last)),
      fmt::format("The norm of the stream goes from {} at the embedding to {} at the end.",
                  ShortNumber(Value(json["norm_y"][0])),
                  ShortNumber(Value(json["norm_y"][cosine.size() - 1])))};
}

std::vector<std::string> PruningSentences(const StudyJson& json) {
  if (json["perplexity"].empty()) return {};
  const double base = Value(json["perplexity"][0]);
  double bearable = -1;
  for (size_t i = 0; i < json["perplexity"].size(); ++i) {
    if (Value(json["perplexity"][i]) <= 1.01 * base)
      bearable = std::max(bearable, Value(json["percent"][i]));
  }
  const size_t last = json["perplexity"].size() - 1;
  return {fmt::format(
              "Up to {} % of the weights can be set to 0 before perplexity grows by more than 1 %.",
              ShortNumber(bearable)),
          fmt::format("Perplexity is {} with all weights and {} with {} % of them pruned.",
                      ShortNumber(base), ShortNumber(Value(json["perplexity"][last])),
                      ShortNumber(Value(json["percent"][last])))};
}

std::vector<std::string> SourceSentences(const StudyJson& json) {
  // Which source, besides the newest, is the first choice most often?
  std::vector<std::pair<int, int>> counts;
  int modules = 0;
  for (const StudyJson& module : json["modules"]) {
    for (const StudyJson& source : module["sources"]) {
      if (source["source"] == module["block"]) continue;
      ++modules;
      const int number = source["source"].get<int>();
      auto found = std::find_if(counts.begin(), counts.end(),
                                [&](const auto& c) { return c.first == number; });
      if (found == counts.end()) found = counts.insert(counts.end(), {number, 0});
      ++found->second;
      break;
    }
  }
  if (counts.empty()) return {};
  const auto best =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return {fmt::format("Besides the newest output, X_{} contributes most in {} of {} modules.",
                      best->first, best->second, modules)};
}

std::vector<std::string> SpectraSentences(const StudyJson& json) {
  std::vector<std::string> sentences;
  for (const StudyJson& group : json["groups"]) {
    const StudyJson& values = group["values"];
    double total = 0, sum = 0;
    for (const StudyJson& value : values) total += Value(value) * Value(value);
    size_t rank = 0;
    while (rank < values.size() && sum < 0.9 * total) {
      sum += Value(values[rank]) * Value(values[rank]);
      ++rank;
    }
    sentences.push_back(fmt::format(
        "{}: {} of {} singular values hold 90 % of the squared norm; the largest is {}.",
        group["name"].get<std::string>(), rank, values.size(),
        ShortNumber(values.empty() ? 0 : Value(values[0]))));
  }
  return sentences;
}

}  // namespace

std::string StudyCsv(const StudyJson& study) {
  const std::string name = study.value("study", "");
  if (name == "weights") return WeightsCsv(study);
  if (name == "evolution") return EvolutionCsv(study);
  if (name == "cosine") return Columns(study, "depth", {"cosine", "norm_x", "norm_y"});
  if (name == "pruning") return Columns(study, "", {"percent", "pruned", "loss", "perplexity"});
  if (name == "spectra") return SpectraCsv(study);
  return SourcesCsv(study);
}

std::vector<std::string> StudySentences(const StudyJson& study) {
  const std::string name = study.value("study", "");
  if (name == "weights") return WeightSentences(study);
  if (name == "cosine") return CosineSentences(study);
  if (name == "pruning") return PruningSentences(study);
  if (name == "sources") return SourceSentences(study);
  if (name == "spectra") return SpectraSentences(study);
  return {};
}

}  // namespace denseformer
