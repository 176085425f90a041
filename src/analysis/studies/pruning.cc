// Study "pruning": what setting the smallest depth weights to zero costs.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/study_tools.h"
#include "base/progress.h"
#include "base/text.h"
#include "chart/svg.h"
#include "train/evaluate.h"

namespace denseformer {
namespace {

constexpr int64_t kEvalSequences = 8;

StudyJson Run(const RunData& run, const StudyOptions& options) {
  Model model = LoadForStudy(run);
  RequireModules(model, run.path);
  const std::vector<float> original(model.weights().begin(), model.weights().end());
  const TokenFile file(ValidationPath(run, options));
  Activations activations(model, kEvalSequences,
                          std::min<int64_t>(model.config().seq_len, file.size() - 1),
                          ModelUse::kInference);
  EvalOptions eval;
  eval.max_tokens = options.tokens;
  eval.seq_len = std::min<int64_t>(model.config().seq_len, file.size() - 1);
  StudyJson json = {{"study", "pruning"}, {"tokens", 0}};
  for (const char* key : {"percent", "pruned", "loss", "perplexity"})
    json[key] = StudyJson::array();
  Progress progress("pruning", "levels", static_cast<double>(options.percents.size()));
  for (double percent : options.percents) {
    std::copy(original.begin(), original.end(), model.weights().begin());
    json["pruned"].push_back(PruneDwa(model, percent));
    const EvalResult result = EvaluateStream(model, file, activations, eval);
    json["tokens"] = result.tokens;
    json["percent"].push_back(percent);
    json["loss"].push_back(ToJson(result.loss));
    json["perplexity"].push_back(ToJson(result.perplexity()));
    progress.Update(static_cast<double>(json["percent"].size()));
  }
  return json;
}

void Check(const StudyJson& json, const StudyChecker& checker) {
  checker.Integer(json, "tokens", 1, int64_t{1} << 62);
  checker.Columns(json, {"percent", "pruned", "loss", "perplexity"});
}

std::string Csv(const StudyJson& json) {
  return CsvColumns(json, "", {"percent", "pruned", "loss", "perplexity"});
}

std::vector<std::string> Sentences(const StudyJson& json) {
  const StudyJson &perplexity = json.at("perplexity"), &percent = json.at("percent");
  if (perplexity.empty()) return {};
  size_t least = 0, most = 0;
  for (size_t i = 1; i < percent.size(); ++i) {
    if (Value(percent[i]) < Value(percent[least])) least = i;
    if (Value(percent[i]) > Value(percent[most])) most = i;
  }
  const double base = Value(perplexity[least]);
  // Every share up to `harmless` keeps perplexity within 1 %.
  double harmless = Value(percent[least]), first_worse = std::nan("");
  for (size_t i = 0; i < percent.size(); ++i) {
    if (!(Value(perplexity[i]) <= 1.01 * base) && !(Value(percent[i]) >= first_worse))
      first_worse = Value(percent[i]);
  }
  for (size_t i = 0; i < percent.size(); ++i) {
    if (!(Value(percent[i]) >= first_worse)) harmless = std::max(harmless, Value(percent[i]));
  }
  return {
      fmt::format("Over the first {} validation tokens, perplexity is {} with {} % of the weights "
                  "pruned and {} with {} %.",
                  WithCommas(json.at("tokens").get<int64_t>()), ShortNumber(base),
                  ShortNumber(Value(percent[least])), ShortNumber(Value(perplexity[most])),
                  ShortNumber(Value(percent[most]))),
      fmt::format("Of the shares tried, {} % is the largest before perplexity has grown by more "
                  "than 1 %.",
                  ShortNumber(harmless))};
}

std::vector<Chart> Charts(const std::vector<NamedStudy>& studies) {
  LineChart chart;
  chart.id = "pruning";
  chart.title = "Perplexity against the share of pruned depth weights";
  chart.description =
      "Perplexity after setting the smallest weights of the averages to zero, one line per run.";
  chart.x_label = "pruned weights, %";
  chart.y_label = "perplexity";
  chart.log_y = true;
  return {OneLinePerRun(studies, chart, "percent", "perplexity")};
}

}  // namespace

extern const Study kPruningStudy = {
    .name = "pruning",
    .link = "Pruning",
    .title = "Pruning the depth weights",
    .help =
        "Perplexity after setting the smallest weights of the averages to 0. It is measured over "
        "the first validation tokens only, so that it can differ from the table of runs.",
    .reads_data = true,
    .available = HasStaticWeights,
    .run = Run,
    .check = Check,
    .csv = Csv,
    .sentences = Sentences,
    .charts = Charts,
};

}  // namespace denseformer
