#include "analysis/study.h"

#include <cmath>

#include "analysis/depth_weights.h"
#include "analysis/similarity.h"
#include "analysis/spectra.h"
#include "base/error.h"
#include "base/file.h"
#include "base/progress.h"
#include "io/run_directory.h"
#include "train/evaluate.h"
#include "train/train_data.h"
#include "train/trainer.h"

namespace denseformer {
namespace {

constexpr int64_t kEvalSequences = 8;

// JSON has no NaN: such a value is null.
StudyJson ToJson(double value) { return std::isfinite(value) ? StudyJson(value) : StudyJson(); }

StudyJson ToJson(const std::vector<double>& values) {
  StudyJson array = StudyJson::array();
  for (double value : values) array.push_back(ToJson(value));
  return array;
}

StudyJson ToJson(const DepthMatrix& matrix) {
  StudyJson array = StudyJson::array();
  for (const auto& row : matrix.value) array.push_back(ToJson(row));
  return array;
}

// fp32: an analysis should see the weights as they are.
Model Load(const RunData& run) { return LoadModel(run.path, DType::kF32, ModelUse::kInference); }

std::string ValidationPath(const RunData& run, const StudyOptions& options) {
  std::string directory = options.data;
  if (directory.empty()) {
    if (run.options.empty()) {
      Throw(ErrorCode::kInvalid,
            "{}: the run does not say what data it was trained on; give --data DIR", run.path);
    }
    directory = ReadStoredOptions(run.path).data;
  }
  return directory + "/" + kValidationFile;
}

StudyJson WeightsJson(const DepthMean& mean, const std::vector<std::string>& names,
                      const std::string& pattern) {
  return {{"study", "weights"},        {"runs", names},
          {"depth", mean.mean.depth},  {"pattern", pattern},
          {"mean", ToJson(mean.mean)}, {"standard_error", ToJson(mean.standard_error)}};
}

StudyJson Weights(const RunData& run) {
  const DepthMatrix weights = DepthWeights(Load(run), run.path);
  return WeightsJson(MeanDepthWeights({weights}, {run.name}), {run.name}, run.config.dwa);
}

StudyJson Evolution(const RunData& run) {
  if (run.config.dwa == "none") DepthWeights(Load(run), run.path);  // throws the right words
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

StudyJson Cosine(const RunData& run, const StudyOptions& options) {
  const Model model = Load(run);
  const TokenFile file(ValidationPath(run, options));
  const DepthSimilarity similarity = MeasureSimilarity(model, file, options.tokens);
  return {{"study", "cosine"},
          {"depth", run.config.n_layer},
          {"tokens", similarity.tokens},
          {"cosine", ToJson(similarity.cosine_y)},
          {"norm_x", ToJson(similarity.norm_x)},
          {"norm_y", ToJson(similarity.norm_y)}};
}

StudyJson Sources(const RunData& run, const StudyOptions& options) {
  const Model model = Load(run);
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

StudyJson Pruning(const RunData& run, const StudyOptions& options) {
  Model model = Load(run);
  DepthWeights(model, run.path);  // throws where there is nothing to prune
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

StudyJson Spectra(const RunData& run) {
  const Model model = Load(run);
  Progress progress("spectra", "matrices", 1);
  StudyJson json = {{"study", "spectra"}, {"groups", StudyJson::array()}};
  for (const Spectrum& spectrum :
       WeightSpectra(model, [&](double share) { progress.Update(share); })) {
    json["groups"].push_back({{"name", spectrum.name},
                              {"matrices", spectrum.matrices},
                              {"values", ToJson(spectrum.values)}});
  }
  return json;
}

}  // namespace

StudyJson MeanWeights(const std::vector<NamedStudy>& studies) {
  std::vector<DepthMatrix> matrices;
  std::vector<std::string> names;
  for (const NamedStudy& study : studies) {
    DepthMatrix matrix = EmptyDepthMatrix(study.json.at("depth").get<int>());
    for (int i = 0; i <= matrix.depth; ++i) {
      for (int j = 0; j <= matrix.depth; ++j) {
        const StudyJson& weight = study.json.at("mean")[i][j];
        if (weight.is_number()) matrix.value[i][j] = weight.get<double>();
      }
    }
    matrices.push_back(std::move(matrix));
    names.push_back(study.run);
  }
  return WeightsJson(MeanDepthWeights(matrices, names), names,
                     studies.front().json.value("pattern", ""));
}

bool CanStudy(const std::string& name, const RunData& run) {
  if (name == "evolution") return run.config.dwa != "none" && !run.alphas.empty();
  if (name == "weights" || name == "sources" || name == "pruning") return run.config.dwa != "none";
  return true;
}

StudyJson RunStudy(const std::string& name, const RunData& run, const StudyOptions& options) {
  if (name == "weights") return Weights(run);
  if (name == "evolution") return Evolution(run);
  if (name == "sources") return Sources(run, options);
  if (name == "cosine") return Cosine(run, options);
  if (name == "pruning") return Pruning(run, options);
  DF_CHECK(name == "spectra");
  return Spectra(run);
}

}  // namespace denseformer
