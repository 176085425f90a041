// Models of other programs in, models for other programs out.
#ifndef DENSEFORMER_IO_IMPORT_EXPORT_H_
#define DENSEFORMER_IO_IMPORT_EXPORT_H_

#include <string>
#include <vector>

#include "io/stored_tensor.h"
#include "model/model.h"

namespace denseformer {

struct ImportOptions {
  std::string path;               // as OpenForeign takes it
  std::string config;             // JSON file of the configuration; "": found beside the weights
  std::string dwa;                // depth pattern; "": the model's own
  std::vector<std::string> sets;  // "key=value" of the configuration
};

struct ImportedModel {
  Model model;
  std::string tokenizer;              // path of a tokenizer.json beside the weights, or ""
  std::vector<std::string> identity;  // averages that the file lacks, set to pass X_i on
};

// The configuration of the model alone.
ModelConfig ImportConfig(const ImportOptions& options);

// The weights in fp32. Every parameter must be there with its shape and nothing else may be (masks
// and tables of positions aside): kInvalid names what is missing, extra or misshaped. A file
// without averages and a depth pattern in the options give a DenseFormer that computes what the
// Transformer did.
ImportedModel ImportModel(const ImportOptions& options);

enum class ExportFormat {
  kNative,       // a run directory of weights only: config.json, model.safetensors, tokenizer.json
  kAuthors,      // model.safetensors with the names of the authors' script, summary.json
  kHuggingFace,  // for transformers: huggingface/huggingface.h
};

// Writes `directory` whole or not at all. `type` is F32, BF16, or for kNative I8; `tokenizer` the
// text of tokenizer.json or "". kUnsupported where the authors' script has no such model.
void ExportModel(const Model& model, const std::string& directory, ExportFormat format,
                 StoredType type, const std::string& tokenizer);

}  // namespace denseformer

#endif  // DENSEFORMER_IO_IMPORT_EXPORT_H_
