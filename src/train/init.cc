#include "train/init.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "io/checkpoint.h"
#include "io/import_export.h"
#include "io/run_directory.h"

namespace denseformer {
namespace {

namespace fs = std::filesystem;

// A run with checkpoints, or one of them; other weights are read as an import reads them.
bool IsTrained(const std::string& path) {
  if (!FileExists(path)) {
    Throw(ErrorCode::kNotFound, "train.init: no run, file or directory at {}", path);
  }
  if (!fs::is_directory(path)) return false;
  return FileExists(path + "/" + kStateFile) || !ListCheckpoints(path).empty();
}

Model LoadSource(const std::string& path) {
  if (IsTrained(path)) return LoadModel(path, DType::kF32, ModelUse::kInference);
  return ImportModel({path, "", "", {}}).model;
}

std::string TokenizerPath(const std::string& path) {
  const fs::path directory = IsTrained(path)          ? fs::path(FindRun(path))
                             : fs::is_directory(path) ? fs::path(path)
                                                      : fs::path(path).parent_path();
  const std::string tokenizer = (directory / kTokenizerFile).string();
  return FileExists(tokenizer) ? tokenizer : "";
}

bool SameMixer(const ModelConfig& a, const ModelConfig& b) {
  return a.mixer == b.mixer && a.streams == b.streams && a.mixer_norm == b.mixer_norm;
}

// Whether every source of every module of `part` is one of `whole`.
bool Contains(const DepthPattern& whole, const DepthPattern& part, int depth) {
  for (int i = 1; i <= depth; ++i) {
    const std::vector<int>&inner = part.sources(i), &outer = whole.sources(i);
    if (!std::includes(outer.begin(), outer.end(), inner.begin(), inner.end())) return false;
  }
  return true;
}

void CheckAverages(const ModelConfig& source, const ModelConfig& config, const std::string& path) {
  const int d = config.n_layer;
  const DepthPattern from = DepthPattern::Parse(source.dwa, d),
                     to = DepthPattern::Parse(config.dwa, d);
  if (from == to && (from.module_count() == 0 || SameMixer(source, config))) return;
  const MixerSpec mixer = ParseMixer(config);
  if (from.module_count() == 0) {
    if (mixer.form->identity) return;
    Throw(ErrorCode::kUsage,
          "train.init: mixer {} does not start as the plain Transformer that {} is; choose another",
          config.mixer, path);
  }
  const bool plain = mixer.plain() && ParseMixer(source).plain();
  if (plain && Contains(to, from, d)) return;
  Throw(
      ErrorCode::kUsage,
      "train.init: the averages of {} (dwa {}, mixer {}, streams {}) have no place in a model with "
      "dwa {}, mixer {}, streams {}; expected the same, or a pattern that reads more",
      path, source.dwa, source.mixer, source.streams, config.dwa, config.mixer, config.streams);
}

void Copy(const Model& from, const Parameter& source, Model& to, const Parameter& parameter) {
  DF_CHECK(source.count() == parameter.count());
  std::copy_n(from.weights().begin() + source.offset, source.count(),
              to.weights().begin() + parameter.offset);
}

// The parameter of the source that `parameter` starts as; null where it starts as a new one. The
// norms of k and v with streams of their own start as the one norm that the source has for both.
const Parameter* SourceOf(const ParameterTable& source, const Parameter& parameter) {
  if (const Parameter* same = source.Find(parameter.name)) return same;
  for (const std::string norm : {".ln_k.", ".ln_v."}) {
    const size_t at = parameter.name.find(norm);
    if (at == std::string::npos) continue;
    return source.Find(parameter.name.substr(0, at) + ".ln_1." +
                       parameter.name.substr(at + norm.size()));
  }
  return nullptr;
}

// Weights of plain averages, source by source.
void CopyAverages(const Model& from, Model& to) {
  for (int i = 1; i <= to.config().n_layer; ++i) {
    // A stage of a pipeline has the weights of its own blocks only.
    if (!from.pattern().has_module(i) || to.tensors().alphas[i].count() == 0) continue;
    const std::vector<int>&inner = from.pattern().sources(i), &outer = to.pattern().sources(i);
    float* weights = to.tensors().alphas[i].f32();
    std::fill_n(weights, outer.size(), 0.0f);
    for (size_t s = 0; s < inner.size(); ++s) {
      const auto place = std::find(outer.begin(), outer.end(), inner[s]);
      weights[place - outer.begin()] = from.tensors().alphas[i].f32()[s];
    }
  }
}

}  // namespace

ModelConfig InitConfig(const std::string& path) {
  return IsTrained(path) ? ReadConfig(FindRun(path)) : ImportConfig({path, "", "", {}});
}

void CheckInit(const ModelConfig& source, const ModelConfig& config, const std::string& path) {
  struct Field {
    const char* name;
    int value, theirs;
  };
  // Rotary positions have no weights, so sequences may have another length; biases and gains that
  // the source lacks start as 0 and 1.
  const Field fields[] = {{"n_layer", config.n_layer, source.n_layer},
                          {"n_head", config.n_head, source.n_head},
                          {"n_embd", config.n_embd, source.n_embd},
                          {"vocab_size", config.vocab_size, source.vocab_size},
                          {"bias", config.bias, config.bias || source.bias},
                          {"gains", config.gains, config.gains || source.gains}};
  for (const Field& field : fields) {
    if (field.value == field.theirs) continue;
    Throw(ErrorCode::kUsage, "train.init: model.{} is {}, but the weights at {} have {}",
          field.name, field.value, path, field.theirs);
  }
  CheckAverages(source, config, path);
}

std::optional<Tokenizer> InitTokenizer(const std::string& path,
                                       const std::optional<Tokenizer>& data_tokenizer) {
  const std::string file = TokenizerPath(path);
  if (file.empty()) return data_tokenizer;
  Tokenizer tokenizer = Tokenizer::Load(file);
  if (data_tokenizer && data_tokenizer->Hash() != tokenizer.Hash()) {
    Throw(ErrorCode::kInvalid,
          "train.init: the data were made with another tokenizer ({} tokens) than {} ({} tokens); "
          "prepare them with 'denseformer data prepare --tokenizer {}'",
          data_tokenizer->vocab_size(), file, tokenizer.vocab_size(), file);
  }
  return tokenizer;
}

void InitializeFrom(const std::string& path, uint64_t seed, Model& model) {
  const Model source = LoadSource(path);
  CheckInit(source.config(), model.config(), path);
  const bool same_averages =
      source.pattern() == model.pattern() && SameMixer(source.config(), model.config());
  model.Initialize(seed);
  for (const Parameter& parameter : model.table().all()) {
    if (parameter.mixes() && !same_averages) continue;
    const Parameter* from = SourceOf(source.table(), parameter);
    if (from != nullptr) Copy(source, *from, model, parameter);
  }
  if (!same_averages) CopyAverages(source, model);
  model.WeightsChanged();
}

}  // namespace denseformer
