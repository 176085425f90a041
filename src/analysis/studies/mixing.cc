// Study "mixing": the weights of depth mixers that differ between tokens or streams.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/study_tools.h"
#include "analysis/token_weights.h"
#include "base/text.h"
#include "chart/svg.h"
#include "data/token_file.h"

namespace denseformer {
namespace {

StudyJson Run(const RunData& run, const StudyOptions& options) {
  const Model model = LoadForStudy(run);
  const TokenFile file(ValidationPath(run, options));
  const TokenWeights weights = MeasureTokenWeights(model, file, options.tokens, run.path);
  StudyJson streams = StudyJson::array();
  for (const StreamWeights& stream : weights.streams) {
    streams.push_back({{"stream", stream.stream},
                       {"mean", ToJson(stream.mean)},
                       {"spread", ToJson(stream.spread)},
                       {"entropy", ToJson(stream.entropy)},
                       {"newest", ToJson(stream.newest)}});
  }
  return {{"study", "mixing"},
          {"depth", run.config.n_layer},
          {"tokens", weights.tokens},
          {"pattern", run.config.dwa},
          {"mixer", run.config.mixer},
          {"mixer_norm", run.config.mixer_norm},
          {"streams", std::move(streams)}};
}

void Check(const StudyJson& json, const StudyChecker& checker) {
  const int64_t size = checker.Depth(json) + 1;
  checker.Integer(json, "tokens", 1, int64_t{1} << 62);
  const StudyJson &mixer = checker.Member(json, "mixer"),
                  &norm = checker.Member(json, "mixer_norm");
  const auto forms = MixerForms();
  if (std::none_of(forms.begin(), forms.end(),
                   [&](const MixerForm& form) { return mixer == std::string(form.name); }))
    checker.Fail("'mixer' is none of " + MixerNames());
  if (norm != "none" && norm != "prepost") checker.Fail("'mixer_norm' is not " + MixerNormNames());
  for (const StudyJson& stream : checker.Array(json, "streams")) {
    if (!checker.Member(stream, "stream").is_string()) checker.Fail("'stream' is no text");
    for (const char* key : {"mean", "spread"}) {
      const StudyJson& rows = checker.Array(stream, key);
      if (static_cast<int64_t>(rows.size()) != size)
        checker.Fail(fmt::format("'{}' has {} rows, expected {}", key, rows.size(), size));
      for (const StudyJson& row : rows) checker.Numbers(row, key, size);
    }
    for (const char* key : {"entropy", "newest"})
      checker.Numbers(checker.Array(stream, key), key, size);
  }
}

std::string Csv(const StudyJson& json) {
  std::string csv = "stream,block,source,mean,spread\n";
  for (const StudyJson& stream : json.at("streams")) {
    for (size_t i = 0; i < stream["mean"].size(); ++i) {
      for (size_t j = 0; j < stream["mean"][i].size(); ++j) {
        if (!stream["mean"][i][j].is_number()) continue;
        csv += fmt::format("{},{},{},{},{}\n", stream["stream"].get<std::string>(), i, j,
                           CsvNumber(stream["mean"][i][j]), CsvNumber(stream["spread"][i][j]));
      }
    }
  }
  return csv;
}

// Mean of the values that exist.
double MeanOf(const StudyJson& list) {
  double sum = 0;
  int count = 0;
  for (const double value : Values(list)) {
    if (!std::isfinite(value)) continue;
    sum += value;
    ++count;
  }
  return count == 0 ? kNoValue : sum / count;
}

// Where the spread over tokens is largest.
std::string SpreadSentence(const StudyJson& stream) {
  double largest = -1;
  size_t block = 0, source = 0;
  const std::vector<std::vector<double>> spread = Matrix(stream.at("spread"));
  for (size_t i = 0; i < spread.size(); ++i) {
    for (size_t j = 0; j < spread[i].size(); ++j) {
      if (!(spread[i][j] > largest)) continue;
      largest = spread[i][j];
      block = i;
      source = j;
    }
  }
  if (largest <= 0) return "no weight differs between tokens";
  return fmt::format("the weight on {} after block {} differs most between tokens, {} ± {}",
                     SourceName(static_cast<int>(source)), block,
                     ShortNumber(Value(stream["mean"][block][source])), ShortNumber(largest));
}

// The size of the weights of a module, mean over modules.
double MeanSize(const StudyJson& stream) {
  double sum = 0;
  int modules = 0;
  for (const std::vector<double>& row : Matrix(stream.at("mean"))) {
    double size = 0;
    bool module = false;
    for (const double weight : row) {
      if (!std::isfinite(weight)) continue;
      size += std::abs(weight);
      module = true;
    }
    sum += size;
    modules += module ? 1 : 0;
  }
  return modules == 0 ? 0 : sum / modules;
}

std::vector<std::string> Sentences(const StudyJson& json) {
  const bool gated = json.at("mixer") == "attention", prepost = json.at("mixer_norm") == "prepost";
  std::vector<std::string> sentences = {fmt::format("Mixer {} over the first {} validation tokens.",
                                                    json.at("mixer").get<std::string>(),
                                                    WithCommas(json.at("tokens").get<int64_t>()))};
  if (gated) {
    sentences.push_back(
        "Y is the output of the newest block plus a weighted sum of what each block added. Shares "
        "and entropy are of this sum alone and leave out the output itself, whose weight is 1.");
  } else if (prepost) {
    sentences.push_back(
        "Y is the output of the newest block plus a normalized sum. Shares and entropy are of this "
        "sum alone and leave out the output itself; how large the sum is beside it is learned by "
        "post, not by these weights.");
  }
  for (const StudyJson& stream : json.at("streams")) {
    sentences.push_back(fmt::format(
        "Stream {}: the newest source has {:.0f} % of the weights on average, and the entropy of "
        "a module is {} nats (as even as over {} sources){}; {}.",
        stream["stream"].get<std::string>(), 100 * MeanOf(stream["newest"]),
        ShortNumber(MeanOf(stream["entropy"])), ShortNumber(std::exp(MeanOf(stream["entropy"]))),
        gated ? fmt::format(", with weights that add up to {} beside the 1 of the output itself",
                            ShortNumber(MeanSize(stream)))
              : "",
        SpreadSentence(stream)));
  }
  return sentences;
}

std::vector<Chart> Charts(const std::vector<NamedStudy>& studies) {
  std::vector<Chart> charts;
  LineChart entropy;
  entropy.id = "mixing-entropy";
  entropy.title = "Entropy of the weights of a module";
  entropy.description =
      "Mean over tokens of the entropy of the sizes of the weights of a module, one line per run "
      "and stream: 0 for a single source, more the more evenly sources are read. The newest output "
      "that attention and prepost add to the sum is left out.";
  entropy.x_label = "after block";
  entropy.y_label = "entropy, nats";
  entropy.from_zero = true;
  const std::vector<std::string> slugs = Slugs(studies);
  for (size_t n = 0; n < studies.size(); ++n) {
    for (const StudyJson& stream : studies[n].json.at("streams")) {
      const std::string name = stream["stream"].get<std::string>();
      const std::string id = slugs[n] + "-" + name;
      HeatMap mean = SourceMap("mixing-mean-" + id,
                               fmt::format("Mean weights: {}, stream {}", studies[n].run, name),
                               Matrix(stream["mean"]));
      mean.description =
          "Heat map of the mean over tokens of the weights of a stream: one row per module, one "
          "column per output that it reads, 0 for the embedding. Blue is negative, orange "
          "positive.";
      HeatMap spread =
          SourceMap("mixing-spread-" + id,
                    fmt::format("Spread over tokens: {}, stream {}", studies[n].run, name),
                    Matrix(stream["spread"]));
      spread.description = "Heat map of the standard deviation over tokens of the same weights.";
      spread.diverging = false;
      charts.push_back(std::move(mean));
      charts.push_back(std::move(spread));
      Series line{studies[n].run + ", " + name, {}, {}};
      const std::vector<double> values = Values(stream["entropy"]);
      for (size_t i = 0; i < values.size(); ++i) {
        if (!std::isfinite(values[i])) continue;
        line.x.push_back(static_cast<double>(i));
        line.y.push_back(values[i]);
      }
      entropy.series.push_back(std::move(line));
    }
  }
  charts.push_back(std::move(entropy));
  return charts;
}

bool HasMixing(const RunData& run) {
  return run.config.dwa != "none" && !ParseMixer(run.config).plain();
}

}  // namespace

extern const Study kMixingStudy = {
    .name = "mixing",
    .link = "Mixing",
    .title = "Weights of the depth mixers",
    .help =
        "Weights that depend on the token, or that several streams have: mean and standard "
        "deviation over validation tokens. With attention and attnres they multiply what each "
        "block added instead of its output. attention and prepost add the newest output itself, "
        "which shares and entropy leave out.",
    .reads_data = true,
    .available = HasMixing,
    .run = Run,
    .check = Check,
    .csv = Csv,
    .sentences = Sentences,
    .charts = Charts,
};

}  // namespace denseformer
