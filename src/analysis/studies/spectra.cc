// Study "spectra": singular values of the weight matrices.
#include "analysis/spectra.h"

#include <fmt/format.h>

#include "analysis/study_tools.h"
#include "base/progress.h"

namespace denseformer {
namespace {

StudyJson Run(const RunData& run, const StudyOptions&) {
  const Model model = LoadForStudy(run);
  Progress progress("spectra", "%", 1);
  StudyJson json = {{"study", "spectra"}, {"groups", StudyJson::array()}};
  for (const Spectrum& spectrum :
       WeightSpectra(model, [&](double share) { progress.Update(share); })) {
    json["groups"].push_back({{"name", spectrum.name},
                              {"matrices", spectrum.matrices},
                              {"values", ToJson(spectrum.values)}});
  }
  return json;
}

void Check(const StudyJson& json, const StudyChecker& checker) {
  for (const StudyJson& group : checker.Array(json, "groups")) {
    if (!checker.Member(group, "name").is_string()) checker.Fail("'name' of a group is not text");
    checker.Numbers(checker.Array(group, "values"), "values", -1);
  }
}

std::string Csv(const StudyJson& json) {
  std::string csv = "group,number,singular_value\n";
  for (const StudyJson& group : json["groups"]) {
    for (size_t k = 0; k < group["values"].size(); ++k) {
      csv += fmt::format("{},{},{}\n", group["name"].get<std::string>(), k,
                         CsvNumber(group["values"][k]));
    }
  }
  return csv;
}

std::vector<std::string> Sentences(const StudyJson& json) {
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

std::vector<Chart> Charts(const std::vector<NamedStudy>& studies) {
  std::vector<Chart> charts;
  const size_t groups = studies.front().json.at("groups").size();
  for (size_t g = 0; g < groups; ++g) {
    LineChart chart;
    chart.shared_legend = true;
    chart.id = fmt::format("spectra-{}", g);
    for (const NamedStudy& study : studies) {
      if (study.json.at("groups").size() <= g) continue;
      const StudyJson& group = study.json.at("groups")[g];
      chart.title = "Singular values: " + group.at("name").get<std::string>();
      Series series{study.run, {}, Values(group.at("values")), study.color};
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

}  // namespace

extern const Study kSpectraStudy = {
    .name = "spectra",
    .link = "Spectra",
    .title = "Spectra of the weight matrices",
    .help = "Singular values from the largest to the smallest, averaged over the blocks.",
    .available = AnyRun,
    .run = Run,
    .check = Check,
    .csv = Csv,
    .sentences = Sentences,
    .charts = Charts,
};

}  // namespace denseformer
