// Weights of other programs: where they are, what they are called, what model they belong to.
#ifndef DENSEFORMER_IO_FOREIGN_WEIGHTS_H_
#define DENSEFORMER_IO_FOREIGN_WEIGHTS_H_

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/foreign_names.h"
#include "io/stored_tensor.h"

namespace denseformer {

// All tensors of a checkpoint by name, and the JSON beside it.
struct ForeignWeights {
  std::string path;       // of the file of tensors, or of the directory of several
  std::string directory;  // where it lies
  std::map<std::string, StoredTensor> tensors;
  nlohmann::json config;                            // null where there is none
  std::string config_path;                          //
  std::vector<std::shared_ptr<const void>> owners;  // of the bytes

  std::set<std::string> names() const;
};

// `path` is a file (.pt or safetensors) or a directory that holds model.safetensors,
// model-*-of-*.safetensors (with or without their index), ckpt.pt, or one .pt, .pth, .bin or
// .safetensors file. The configuration is `config_path`, or summary.json or config.json beside the
// tensors, or the one in their metadata.
ForeignWeights OpenForeign(const std::string& path, const std::string& config_path);

// The model that the tensors and the JSON describe. `sets` ("key=value") overrule. Throws kInvalid
// where a value is missing and cannot be told from the tensors, with the option that gives it.
ModelConfig ForeignConfig(const ForeignWeights& weights, const ForeignNaming& naming,
                          const std::vector<std::string>& sets, const std::string& dwa);

}  // namespace denseformer

#endif  // DENSEFORMER_IO_FOREIGN_WEIGHTS_H_
