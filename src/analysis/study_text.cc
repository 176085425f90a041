// Tables and sentences of studies.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/study.h"
#include "chart/svg.h"

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

std::string Modules(size_t count) {
  return fmt::format("{} module{}", count, count == 1 ? "" : "s");
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
                                 Modules(weights.size()), mean_of(0, weights.size()));
  const size_t third = weights.size() / 3;
  if (third > 0) {
    text += fmt::format(": {} in the first third of the depth, {} in the last", mean_of(0, third),
                        mean_of(weights.size() - third, weights.size()));
  }
  return text + ".";
}

std::vector<std::string> WeightSentences(const StudyJson& json) {
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
  std::string first = fmt::format("{} with {} weights", Modules(modules), own_count + other_count);
  if (own_count > 0) {
    first += fmt::format("; the weight on a block's own output is {} on average",
                         ShortNumber(own / static_cast<double>(own_count)));
  }
  std::vector<std::string> sentences = {first + "."};
  if (other_count == 0) return sentences;
  sentences.push_back(
      fmt::format("Weights on older outputs have a mean size of {}; {:.0f} % of them are negative.",
                  ShortNumber(others / static_cast<double>(other_count)),
                  100.0 * static_cast<double>(negative) / static_cast<double>(other_count)));
  if (largest != 0) {
    sentences.push_back(fmt::format("The largest of them is {}, on {}.", ShortNumber(largest),
                                    ModulePlace(largest_j, largest_i)));
  }
  sentences.push_back(EmbeddingSentence(mean));
  return sentences;
}

std::vector<std::string> EvolutionSentences(const StudyJson& json) {
  const std::vector<double> sizes = MeanOlderSizes(json);
  if (sizes.size() < 2 || !(sizes.back() > 0)) return {};
  size_t half = 0;
  while (sizes[half] < 0.5 * sizes.back()) ++half;
  return {fmt::format(
      "The mean size of the weights on older outputs goes from {} to {} over {} snapshots; half of "
      "that is reached by step {}.",
      ShortNumber(sizes.front()), ShortNumber(sizes.back()), sizes.size(),
      ShortNumber(json.at("steps")[half].get<double>()))};
}

std::vector<std::string> CosineSentences(const StudyJson& json) {
  const StudyJson &cosine = json.at("cosine"), &norms = json.at("norm_y");
  if (cosine.size() < 2) return {};
  size_t lowest = 0;
  for (size_t i = 0; i < cosine.size(); ++i) {
    if (Value(cosine[i]) < Value(cosine[lowest])) lowest = i;
  }
  const size_t last = cosine.size() - 1;
  const std::string least = ShortNumber(Value(cosine[lowest])),
                    end = ShortNumber(Value(cosine[last]));
  std::string similarity = fmt::format(
      "The cosine similarity with the embedding is lowest, {}, at depth {}", least, lowest);
  if (lowest == last) {
    similarity += ", the last.";
  } else {
    similarity += fmt::format("; at the last, {}, it is {}.", last, end);
  }
  return {similarity, fmt::format("The norm of what is passed on goes from {} at the embedding to "
                                  "{} at the end.",
                                  ShortNumber(Value(norms[0])), ShortNumber(Value(norms[last])))};
}

std::vector<std::string> PruningSentences(const StudyJson& json) {
  const StudyJson &perplexity = json.at("perplexity"), &percent = json.at("percent");
  if (perplexity.empty()) return {};
  size_t least = 0, most = 0;
  for (size_t i = 1; i < percent.size(); ++i) {
    if (Value(percent[i]) < Value(percent[least])) least = i;
    if (Value(percent[i]) > Value(percent[most])) most = i;
  }
  const double base = Value(perplexity[least]);
  // Every share up to this one keeps perplexity within 1 %.
  double bearable = Value(percent[least]), first_worse = std::nan("");
  for (size_t i = 0; i < percent.size(); ++i) {
    if (!(Value(perplexity[i]) <= 1.01 * base) && !(Value(percent[i]) >= first_worse))
      first_worse = Value(percent[i]);
  }
  for (size_t i = 0; i < percent.size(); ++i) {
    if (!(Value(percent[i]) >= first_worse)) bearable = std::max(bearable, Value(percent[i]));
  }
  return {
      fmt::format("Perplexity is {} with {} % of the weights pruned and {} with {} %.",
                  ShortNumber(base), ShortNumber(Value(percent[least])),
                  ShortNumber(Value(perplexity[most])), ShortNumber(Value(percent[most]))),
      fmt::format("Of the shares tried, {} % is the largest before perplexity has grown by more "
                  "than 1 %.",
                  ShortNumber(bearable))};
}

std::vector<std::string> SourceSentences(const StudyJson& json) {
  // Which output, besides the newest, is the first choice most often? Sources stand in the order of
  // their shares.
  std::map<int, int> counts;
  int modules = 0;
  double older = 0;
  for (const StudyJson& module : json.at("modules")) {
    bool first = true;
    for (const StudyJson& source : module.at("sources")) {
      if (source.at("source") == module.at("block")) continue;
      older += source.at("share").get<double>();
      if (first) ++counts[source.at("source").get<int>()];
      modules += first;
      first = false;
    }
  }
  if (counts.empty()) return {};
  const auto best =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  std::vector<std::string> sentences = {
      fmt::format("Older outputs have {:.0f} % of the shares.", 100 * older / modules)};
  if (best->second > 1 || modules == 1) {
    sentences.push_back(fmt::format("Besides the newest output, {} contributes most in {} of {}.",
                                    SourceName(best->first), best->second, Modules(modules)));
  }
  return sentences;
}

std::vector<std::string> SpectraSentences(const StudyJson& json) {
  std::string list;
  for (const StudyJson& group : json.at("groups")) {
    const StudyJson& values = group.at("values");
    double total = 0, sum = 0;
    for (const StudyJson& value : values) total += Value(value) * Value(value);
    size_t rank = 0;
    while (rank < values.size() && sum < 0.9 * total) {
      sum += Value(values[rank]) * Value(values[rank]);
      ++rank;
    }
    list += fmt::format("{}{} {} of {}", list.empty() ? "" : ", ",
                        group.at("name").get<std::string>(), rank, values.size());
  }
  if (list.empty()) return {};
  return {"Singular values that hold 90 % of the squared norm: " + list + "."};
}

}  // namespace

std::vector<double> MeanOlderSizes(const StudyJson& evolution) {
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

std::string StudyCsv(const StudyJson& study) {
  const std::string name = study.at("study").get<std::string>();
  if (name == "weights") return WeightsCsv(study);
  if (name == "evolution") return EvolutionCsv(study);
  if (name == "cosine") return Columns(study, "depth", {"cosine", "norm_x", "norm_y"});
  if (name == "pruning") return Columns(study, "", {"percent", "pruned", "loss", "perplexity"});
  if (name == "spectra") return SpectraCsv(study);
  return SourcesCsv(study);
}

std::vector<std::string> StudySentences(const StudyJson& study) {
  const std::string name = study.at("study").get<std::string>();
  if (name == "weights") return WeightSentences(study);
  if (name == "evolution") return EvolutionSentences(study);
  if (name == "cosine") return CosineSentences(study);
  if (name == "pruning") return PruningSentences(study);
  if (name == "sources") return SourceSentences(study);
  if (name == "spectra") return SpectraSentences(study);
  return {};
}

}  // namespace denseformer
