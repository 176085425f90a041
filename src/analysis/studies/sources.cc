// Study "sources": how much each average relies on each of its sources.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/similarity.h"
#include "analysis/study_tools.h"
#include "chart/svg.h"
#include "data/token_file.h"

namespace denseformer {
namespace {

StudyJson Run(const RunData& run, const StudyOptions& options) {
  const Model model = LoadForStudy(run);
  const DepthMatrix weights = DepthWeights(model, run.path);
  const TokenFile file(ValidationPath(run, options));
  const DepthSimilarity similarity = MeasureSimilarity(model, file, options.tokens);
  const auto shares = SourceShares(weights, similarity.norm_x);
  StudyJson json = {
      {"study", "sources"}, {"depth", run.config.n_layer}, {"modules", StudyJson::array()}};
  for (int i = 1; i <= weights.depth; ++i) {
    if (shares[i].empty()) continue;
    StudyJson entry = {{"block", i}, {"sources", StudyJson::array()}};
    for (const SourceShare& share : shares[i]) {
      entry["sources"].push_back(
          {{"source", share.source}, {"weight", ToJson(share.weight)}, {"share", share.share}});
    }
    json["modules"].push_back(entry);
  }
  return json;
}

void Check(const StudyJson& json, const StudyChecker& checker) {
  const int64_t depth = checker.Depth(json);
  for (const StudyJson& module : checker.Array(json, "modules")) {
    checker.Integer(module, "block", 1, depth);
    for (const StudyJson& source : checker.Array(module, "sources")) {
      checker.Integer(source, "source", 0, depth);
      if (!checker.Member(source, "share").is_number()) checker.Fail("'share' is not a number");
      checker.Member(source, "weight");
    }
  }
}

std::string Csv(const StudyJson& json) {
  std::string csv = "block,source,weight,share\n";
  for (const StudyJson& module : json["modules"]) {
    for (const StudyJson& source : module["sources"]) {
      csv += fmt::format("{},{},{},{}\n", module["block"].get<int>(), source["source"].get<int>(),
                         CsvNumber(source["weight"]), CsvNumber(source["share"]));
    }
  }
  return csv;
}

std::vector<std::string> Sentences(const StudyJson& json) {
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
                                    SourceName(best->first), best->second, ModuleCount(modules)));
  }
  return sentences;
}

std::vector<Chart> Charts(const std::vector<NamedStudy>& studies) {
  std::vector<Chart> charts;
  const std::vector<std::string> slugs = Slugs(studies);
  for (size_t n = 0; n < studies.size(); ++n) {
    const size_t size = studies[n].json.at("depth").get<size_t>() + 1;
    std::vector<std::vector<double>> shares(size, std::vector<double>(size, kNoValue));
    for (const StudyJson& module : studies[n].json.at("modules")) {
      for (const StudyJson& source : module.at("sources")) {
        shares[module.at("block").get<size_t>()][source.at("source").get<size_t>()] =
            source.at("share").get<double>();
      }
    }
    HeatMap map = SourceMap("sources-" + slugs[n], "Shares of the outputs: " + studies[n].run,
                            std::move(shares));
    map.description =
        "Heat map of the share that each output has in the average after a block: magnitude of its "
        "weight times its norm, over the sum of the module.";
    map.column_word = "share of output";
    map.diverging = false;
    charts.push_back(map);
  }
  return charts;
}

}  // namespace

extern const Study kSourcesStudy = {
    .name = "sources",
    .link = "Sources",
    .title = "What each depth relies on",
    .help =
        "Share of each output in an average: magnitude of its weight times its norm, over the sum "
        "of the module. The color scale ends at the largest share of an older output.",
    .reads_data = true,
    .available = HasAverages,
    .run = Run,
    .check = Check,
    .csv = Csv,
    .sentences = Sentences,
    .charts = Charts,
};

}  // namespace denseformer
