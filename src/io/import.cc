#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "io/foreign_weights.h"
#include "io/import_export.h"
#include "io/weights.h"

namespace denseformer {
namespace {

// Dimensions of 1 carry no meaning: gains come as [] and [1], averages as [n] and [1, n].
std::vector<int64_t> WithoutOnes(std::vector<int64_t> shape) {
  std::erase(shape, 1);
  return shape;
}

// One parameter in the file.
struct Assignment {
  const Parameter* parameter;
  std::vector<std::pair<ForeignPiece, const StoredTensor*>> pieces;
};

class Importer {
 public:
  Importer(const ForeignWeights& weights, const ForeignNaming& naming, const ModelConfig& config)
      : weights_(weights), naming_(naming), config_(config) {}

  // Finds every parameter; throws with all that does not fit.
  void Match(const ParameterTable& table, std::vector<std::string>& identity) {
    for (const Parameter& parameter : table.all()) {
      if (parameter.mixes() && naming_.modules == ModuleNames::kNone &&
          weights_.tensors.count(parameter.name) == 0) {
        identity.push_back(parameter.name);
        continue;
      }
      Assignment& assignment = assignments_.emplace_back(Assignment{&parameter, {}});
      for (const ForeignPiece& piece : PiecesOf(parameter, naming_)) MatchPiece(assignment, piece);
    }
    for (const auto& [name, tensor] : weights_.tensors) {
      if (used_.count(name) == 0 && !Ignorable(name, tensor)) {
        problems_.push_back(
            fmt::format("'{}' {} is no parameter of this model", name, ShapeText(tensor.shape)));
      }
    }
    if (!problems_.empty()) {
      Throw(ErrorCode::kInvalid, "{}: does not fit the model ({} blocks, width {}, dwa {}): {}",
            weights_.path, config_.n_layer, config_.n_embd, config_.dwa, FirstOf(problems_));
    }
  }

  void Read(float* buffer) const {
    for (const Assignment& assignment : assignments_) {
      for (const auto& [piece, tensor] : assignment.pieces) {
        ReadFloats(*tensor, buffer + assignment.parameter->offset + piece.begin);
      }
    }
  }

  // The head is the embedding once more, or the model is another one.
  void CheckHead(const Model& model) const {
    const auto head = weights_.tensors.find(kHeadName);
    if (head == weights_.tensors.end()) return;
    const Tensor& wte = model.tensors().wte;
    const bool same_shape = head->second.shape == DimsOf(wte.shape());
    std::vector<float> values(same_shape ? wte.count() : 0);
    if (same_shape) ReadFloats(head->second, values.data());
    if (!same_shape || std::memcmp(values.data(), wte.raw(), wte.bytes()) != 0) {
      Throw(ErrorCode::kUnsupported,
            "{}: '{}' differs from '{}'; only models that tie them can be "
            "imported",
            weights_.path, kHeadName, kEmbeddingName);
    }
  }

 private:
  void MatchPiece(Assignment& assignment, const ForeignPiece& piece) {
    const auto found = weights_.tensors.find(piece.name);
    if (found == weights_.tensors.end()) {
      problems_.push_back(fmt::format("'{}' {} is missing", piece.name, ShapeText(piece.shape)));
      return;
    }
    used_.insert(piece.name);
    if (WithoutOnes(found->second.shape) != WithoutOnes(piece.shape)) {
      problems_.push_back(fmt::format("'{}' is {}, expected {}", piece.name,
                                      ShapeText(found->second.shape), ShapeText(piece.shape)));
      return;
    }
    assignment.pieces.emplace_back(piece, &found->second);
  }

  bool Ignorable(const std::string& name, const StoredTensor& tensor) const {
    if (name == kHeadName || IsMaskName(name)) return true;
    if (!name.starts_with(kPositionPrefix)) return false;
    // The authors' files keep a table that rotary positions do not use; elsewhere it is learned.
    const bool authors = weights_.config.is_object() && weights_.config.contains("args");
    return authors || tensor.shape.size() != 2 || tensor.shape[1] != config_.n_embd;
  }

  const ForeignWeights& weights_;
  const ForeignNaming& naming_;
  const ModelConfig& config_;
  std::vector<Assignment> assignments_;
  std::set<std::string> used_;
  std::vector<std::string> problems_;
};

}  // namespace

ModelConfig ImportConfig(const ImportOptions& options) {
  const ForeignWeights weights = OpenForeign(options.path, options.config);
  return ForeignConfig(weights, DetectNaming(weights.names()), options.sets, options.dwa);
}

ImportedModel ImportModel(const ImportOptions& options) {
  const ForeignWeights weights = OpenForeign(options.path, options.config);
  const ForeignNaming naming = DetectNaming(weights.names());
  const ModelConfig config = ForeignConfig(weights, naming, options.sets, options.dwa);
  // Before the memory is taken, so that a wrong file costs nothing.
  const ParameterTable table(config, DepthPattern::Parse(config.dwa, config.n_layer));
  Importer importer(weights, naming, config);
  std::vector<std::string> identity;
  importer.Match(table, identity);
  ImportedModel result{Model(config, DType::kF32, ModelUse::kInference), "", std::move(identity)};
  float* buffer = result.model.weights().data();
  if (!result.identity.empty()) result.model.Initialize(/*seed=*/0);
  importer.Read(buffer);
  importer.CheckHead(result.model);
  result.model.WeightsChanged();
  const std::string tokenizer = weights.directory + "/tokenizer.json";
  if (FileExists(tokenizer)) result.tokenizer = tokenizer;
  return result;
}

}  // namespace denseformer
