#include "sweep/studies.h"

#include <cmath>
#include <cstdlib>
#include <limits>

#include "analysis/studies/evolution.h"
#include "base/error.h"
#include "denseformer/depth_pattern.h"

namespace denseformer {
namespace {

LedgerJson Rounded(double value) {
  if (!std::isfinite(value)) return nullptr;
  return std::strtod(fmt::format("{:.5g}", value).c_str(), nullptr);
}

LedgerJson Rounded(const std::vector<double>& values) {
  LedgerJson list = LedgerJson::array();
  for (const double value : values) list.push_back(Rounded(value));
  return list;
}

LedgerJson RoundedList(const StudyJson& study, const char* key) {
  return Rounded(NumbersOf(study.at(key)));
}

LedgerJson CondenseWeights(const StudyJson& study) {
  LedgerJson modules = LedgerJson::object();
  const StudyJson& mean = study.at("mean");
  for (size_t i = 0; i < mean.size(); ++i) {
    std::vector<double> row;
    for (const StudyJson& weight : mean[i]) {
      if (weight.is_number()) row.push_back(weight.get<double>());
    }
    if (!row.empty()) modules[std::to_string(i)] = Rounded(row);
  }
  return {{"depth", study.at("depth")}, {"pattern", study.at("pattern")}, {"modules", modules}};
}

LedgerJson CondenseEvolution(const StudyJson& study) {
  const size_t count = study.at("steps").size();
  std::vector<double> squares(count, 0.0);
  for (const auto& [block, snapshots] : study.at("modules").items()) {
    const std::vector<double> last = NumbersOf(snapshots.back());
    for (size_t s = 0; s < count; ++s) {
      const std::vector<double> now = NumbersOf(snapshots[s]);
      for (size_t k = 0; k < now.size(); ++k) squares[s] += (now[k] - last[k]) * (now[k] - last[k]);
    }
  }
  std::vector<double> distance;
  for (const double square : squares) distance.push_back(std::sqrt(square / squares.front()));
  return {{"steps", study.at("steps")},
          {"older", Rounded(MeanOlderMagnitudes(study))},
          {"distance", Rounded(distance)}};
}

LedgerJson CondenseSpectra(const StudyJson& study) {
  LedgerJson groups = LedgerJson::object();
  for (const StudyJson& group : study.at("groups"))
    groups[group.at("name").get<std::string>()] = RoundedList(group, "values");
  return groups;
}

LedgerJson CondenseSources(const StudyJson& study) {
  LedgerJson modules = LedgerJson::object();
  for (const StudyJson& module : study.at("modules")) {
    std::vector<double> sources, shares;
    for (const StudyJson& source : module.at("sources")) {
      sources.push_back(source.at("source").get<double>());
      shares.push_back(source.at("share").get<double>());
    }
    modules[std::to_string(module.at("block").get<int>())] = {{"sources", Rounded(sources)},
                                                              {"shares", Rounded(shares)}};
  }
  return modules;
}

}  // namespace

std::vector<double> NumbersOf(const LedgerJson& list) {
  std::vector<double> values;
  for (const LedgerJson& value : list) {
    values.push_back(value.is_number() ? value.get<double>()
                                       : std::numeric_limits<double>::quiet_NaN());
  }
  return values;
}

LedgerJson CondenseStudy(const std::string& name, const StudyJson& study) {
  if (name == "weights") return CondenseWeights(study);
  if (name == "evolution") return CondenseEvolution(study);
  if (name == "spectra") return CondenseSpectra(study);
  if (name == "sources") return CondenseSources(study);
  if (name == "cosine") {
    return {{"cosine", RoundedList(study, "cosine")},
            {"norm_x", RoundedList(study, "norm_x")},
            {"norm_y", RoundedList(study, "norm_y")}};
  }
  DF_CHECK(name == "pruning");
  return {{"percent", study.at("percent")},
          {"loss", RoundedList(study, "loss")},
          {"perplexity", RoundedList(study, "perplexity")}};
}

std::vector<std::vector<double>> WeightMatrix(const LedgerJson& weights) {
  const int depth = weights.at("depth").get<int>();
  const DepthPattern pattern = DepthPattern::Parse(weights.at("pattern").get<std::string>(), depth);
  const double none = std::numeric_limits<double>::quiet_NaN();
  std::vector<std::vector<double>> matrix(
      static_cast<size_t>(depth) + 1, std::vector<double>(static_cast<size_t>(depth) + 1, none));
  for (const auto& [block, list] : weights.at("modules").items()) {
    const int i = std::stoi(block);
    const std::vector<double> values = NumbersOf(list);
    if (i > depth || values.size() != pattern.sources(i).size()) {
      Throw(ErrorCode::kCorrupt, "ledger: weights after block {} do not fit the pattern {}", block,
            pattern.ToString());
    }
    for (size_t k = 0; k < values.size(); ++k)
      matrix[static_cast<size_t>(i)][static_cast<size_t>(pattern.sources(i)[k])] = values[k];
  }
  return matrix;
}

}  // namespace denseformer
