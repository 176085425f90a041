// Parts of the code for checkpoints that share names and rules; run_directory.h is the interface.
#ifndef DENSEFORMER_IO_CHECKPOINT_H_
#define DENSEFORMER_IO_CHECKPOINT_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "io/manifest.h"
#include "io/run_directory.h"
#include "io/safetensors.h"

namespace denseformer {

inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
inline constexpr const char* kStateFile = "state.json";
inline constexpr const char* kConfigFile = "config.json";
inline constexpr const char* kTokenizerFile = "tokenizer.json";
inline constexpr const char* kTemporaryPrefix = ".tmp-";
inline constexpr const char* kOldSuffix = ".old";

std::string CheckpointsDirectory(const std::string& run);
std::string CheckpointPath(const std::string& run, int64_t step);

// The manifest of a checkpoint; kCorrupt where it does not name the files of one.
Manifest CheckpointManifest(const std::string& path);

// Whether the manifest is right and the sizes fit it; does not read the content.
bool LooksWhole(const std::string& path);

// Those that look whole and have a validation loss, lowest first.
std::vector<CheckpointInfo> ByValidationLoss(const std::vector<CheckpointInfo>& checkpoints);

// What a directory of weights only holds.
struct RunContent {
  std::vector<std::pair<std::string, std::string>> texts;  // name and content
  std::vector<TensorToWrite> tensors;                      // of model.safetensors
  std::map<std::string, std::string> metadata;
};

// Writes manifest and all; the directory appears under its name whole, or not at all. kInvalid
// where it exists and is not empty.
void WriteRunDirectory(const std::string& directory, const RunContent& content);

}  // namespace denseformer

#endif  // DENSEFORMER_IO_CHECKPOINT_H_
