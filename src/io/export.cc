#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "io/checkpoint.h"
#include "io/foreign_names.h"
#include "io/huggingface/huggingface.h"
#include "io/import_export.h"
#include "io/run_directory.h"
#include "io/weights.h"

namespace denseformer {
namespace {

struct AuthorsModel {
  const char* name;
  ForeignNaming naming;
  int dilation = 1;
};

// The authors' script groups blocks by the period, so a pattern fits where some grouped:KxP is the
// same.
std::optional<AuthorsModel> FindGrouped(const Model& model) {
  const int d = model.config().n_layer;
  for (int p = 1; p <= d; ++p) {
    if (d % p != 0) continue;
    for (int k = 1; k <= d; ++k) {
      if (DepthPattern::Parse(fmt::format("grouped:{}x{}", k, p), d) == model.pattern()) {
        return AuthorsModel{"denseformer", {BlockNames::kNested, ModuleNames::kGrouped, p}, k};
      }
    }
  }
  return std::nullopt;
}

AuthorsModel AuthorsModelOf(const Model& model) {
  if (!model.mixer().plain()) {
    Throw(ErrorCode::kUnsupported,
          "export: the authors' script has no model with mixer {} and streams {}; use --format "
          "native",
          model.config().mixer, model.config().streams);
  }
  const int d = model.config().n_layer;
  const DepthPattern& pattern = model.pattern();
  const bool plain = pattern.module_count() == 0;
  if (model.config().gains) {
    if (plain) return {"basewgains", {BlockNames::kFlat, ModuleNames::kNone, 1}};
  } else {
    if (plain) return {"base", {BlockNames::kFlat, ModuleNames::kNone, 1}};
    for (int p = 1; p <= d; ++p) {
      if (d % p == 0 && pattern == DepthPattern::Parse(fmt::format("final:{}", p), d)) {
        return {"connecttolast", {BlockNames::kNested, ModuleNames::kFinal, p}};
      }
    }
    if (const auto grouped = FindGrouped(model)) return *grouped;
  }
  Throw(ErrorCode::kUnsupported,
        "export: the authors' script has no model with dwa {} and gains {}; use --format native",
        model.config().dwa, model.config().gains);
}

std::string Summary(const ModelConfig& config, const AuthorsModel& authors) {
  const nlohmann::ordered_json args = {{"model", authors.name},
                                       {"n_layer", config.n_layer},
                                       {"n_head", config.n_head},
                                       {"n_embd", config.n_embd},
                                       {"vocab_size", config.vocab_size},
                                       {"sequence_length", config.seq_len},
                                       {"bias", config.bias},
                                       {"dilation_factor", authors.dilation},
                                       {"increase_T_every", authors.naming.period}};
  return nlohmann::ordered_json{{"args", args}}.dump(2) + "\n";
}

}  // namespace

void ExportModel(const Model& model, const std::string& directory, ExportFormat format,
                 StoredType type, const std::string& tokenizer) {
  if (type == StoredType::kI8 && format != ExportFormat::kNative) {
    Throw(ErrorCode::kUsage,
          "export: int8 weights are in the native format only; use --format native, or --dtype "
          "bf16");
  }
  if (format == ExportFormat::kHuggingFace) {
    WriteRunDirectory(directory, HuggingFaceContent(model, type, tokenizer));
    return;
  }
  float* buffer = model.weights().data();
  std::vector<std::vector<float>> scales;  // until the files are written
  RunContent content;
  if (!tokenizer.empty()) content.texts.emplace_back(kTokenizerFile, tokenizer);
  if (format == ExportFormat::kNative) {
    content.texts.emplace_back(kConfigFile, ConfigToJson(model.config()));
    content.tensors = type == StoredType::kI8 ? Int8TensorsOf(model.table(), {"", buffer}, scales)
                                              : TensorsOf(model.table(), {"", buffer}, type);
    content.metadata = WeightsMetadata(model.config());
  } else {
    const AuthorsModel authors = AuthorsModelOf(model);
    content.texts.emplace_back("summary.json", Summary(model.config(), authors));
    content.metadata = {{"format", "pt"}};
    for (const Parameter& parameter : model.table().all()) {
      for (const ForeignPiece& piece : PiecesOf(parameter, authors.naming)) {
        content.tensors.push_back(
            {piece.name, type, piece.shape, buffer + parameter.offset + piece.begin});
      }
    }
    const Parameter& embedding = *model.table().Find(kEmbeddingName);
    content.tensors.push_back(
        {kHeadName, type, DimsOf(embedding.shape), buffer + embedding.offset});
  }
  WriteRunDirectory(directory, content);
}

}  // namespace denseformer
