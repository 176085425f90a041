// Study "cosine": similarity with the embedding, and norms, by depth.
#include <fmt/format.h>

#include "analysis/similarity.h"
#include "analysis/study_tools.h"
#include "chart/svg.h"
#include "data/token_file.h"

namespace denseformer {
namespace {

StudyJson Run(const RunData& run, const StudyOptions& options) {
  const Model model = LoadForStudy(run);
  const TokenFile file(ValidationPath(run, options));
  const DepthSimilarity similarity = MeasureSimilarity(model, file, options.tokens);
  return {{"study", "cosine"},
          {"depth", run.config.n_layer},
          {"tokens", similarity.tokens},
          {"cosine", ToJson(similarity.cosine_y)},
          {"norm_x", ToJson(similarity.norm_x)},
          {"norm_y", ToJson(similarity.norm_y)}};
}

void Check(const StudyJson& json, const StudyChecker& checker) {
  checker.Columns(json, {"cosine", "norm_x", "norm_y"});
}

std::string Csv(const StudyJson& json) {
  return CsvColumns(json, "depth", {"cosine", "norm_x", "norm_y"});
}

std::vector<std::string> Sentences(const StudyJson& json) {
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

std::vector<Chart> Charts(const std::vector<NamedStudy>& studies) {
  LineChart cosine, norm_x, norm_y;
  cosine.id = "cosine";
  cosine.title = "Cosine similarity with the embedding";
  cosine.description =
      "Mean cosine similarity of Y, what the next block reads, with the token embedding at each "
      "depth, one line per run.";
  cosine.y_label = "cosine";
  norm_x.id = "norm-x";
  norm_x.title = "Norm of the block outputs X";
  norm_x.description = "Mean norm of each block output, one line per run.";
  norm_x.y_label = "norm of X";
  norm_y.id = "norm-y";
  norm_y.title = "Norm of Y, what the next block reads";
  norm_y.description = "Mean norm of what each block reads, one line per run.";
  norm_y.y_label = "norm of Y";
  cosine.x_label = norm_x.x_label = norm_y.x_label = "depth";
  return {OneLinePerRun(studies, cosine, nullptr, "cosine"),
          OneLinePerRun(studies, norm_x, nullptr, "norm_x"),
          OneLinePerRun(studies, norm_y, nullptr, "norm_y")};
}

}  // namespace

extern const Study kCosineStudy = {
    .name = "cosine",
    .link = "Similarity",
    .title = "Similarity and norms by depth",
    .help =
        "X is the output of a block, Y what the next block reads; means over validation tokens.",
    .reads_data = true,
    .available = AnyRun,
    .run = Run,
    .check = Check,
    .csv = Csv,
    .sentences = Sentences,
    .charts = Charts,
};

}  // namespace denseformer
