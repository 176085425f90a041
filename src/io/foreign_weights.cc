#include "io/foreign_weights.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "io/pytorch_file.h"
#include "io/safetensors.h"
#include "io/strict_json.h"

namespace denseformer {
namespace {

namespace fs = std::filesystem;

void AddTensors(ForeignWeights& weights, std::span<const StoredTensor> tensors,
                const std::string& path) {
  for (const StoredTensor& tensor : tensors) {
    const std::string name = WithoutWrappers(tensor.name);
    if (!weights.tensors.emplace(name, tensor).second) {
      Throw(ErrorCode::kInvalid, "{}: tensor '{}' appears twice", path, name);
    }
  }
}

// Quantized matrices with their scales become fp32.
void Dequantize(ForeignWeights& weights, const std::string& path) {
  std::vector<std::string> scales;
  for (auto& [name, tensor] : weights.tensors) {
    const auto scale = weights.tensors.find(name + kScaleSuffix);
    if (tensor.type != StoredType::kI8 || scale == weights.tensors.end()) continue;
    if (tensor.shape.size() != 2 || scale->second.shape != std::vector<int64_t>{tensor.shape[0]}) {
      Throw(ErrorCode::kInvalid, "{}: '{}' is {}, expected one scale for each row of {}", path,
            scale->first, ShapeText(scale->second.shape), ShapeText(tensor.shape));
    }
    const size_t rows = static_cast<size_t>(tensor.shape[0]);
    const size_t columns = static_cast<size_t>(tensor.shape[1]);
    auto values = std::make_shared<std::vector<float>>(rows * columns);
    std::vector<float> factors(rows);
    ReadFloats(tensor, values->data());
    ReadFloats(scale->second, factors.data());
    for (size_t i = 0; i < values->size(); ++i) (*values)[i] *= factors[i / columns];
    tensor.type = StoredType::kF32;
    tensor.data = reinterpret_cast<const std::byte*>(values->data());
    weights.owners.push_back(values);
    scales.push_back(scale->first);
  }
  for (const std::string& name : scales) weights.tensors.erase(name);
}

void AddFile(ForeignWeights& weights, const std::string& path) {
  if (ZipReader::LooksLikeZip(path) || path.ends_with(".pt") || path.ends_with(".pth")) {
    auto file = std::make_shared<PytorchFile>(path);
    AddTensors(weights, file->tensors(), path);
    weights.owners.push_back(file);
    return;
  }
  auto file = std::make_shared<SafetensorsFile>(path);
  if (file->has_hash()) file->VerifyHash();
  AddTensors(weights, file->tensors(), path);
  Dequantize(weights, path);
  if (const auto config = file->metadata().find("config"); config != file->metadata().end()) {
    weights.config_path = path;
    weights.config = ParseJson(config->second, path + ": configuration in the metadata");
  }
  weights.owners.push_back(file);
}

// The files of tensors in a directory: the first kind of which there are any.
std::vector<std::string> FilesOf(const std::string& directory) {
  std::vector<std::string> shards, others;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    const std::string extension = entry.path().extension().string();
    if (name.starts_with("model-") && extension == ".safetensors") {
      shards.push_back(entry.path().string());
    } else if (extension == ".safetensors" || extension == ".pt" || extension == ".pth" ||
               name == "pytorch_model.bin") {
      others.push_back(entry.path().string());
    }
  }
  for (const char* name : {"model.safetensors", "ckpt.pt"}) {
    if (FileExists(directory + "/" + name)) return {directory + "/" + name};
  }
  std::sort(shards.begin(), shards.end());
  if (!shards.empty()) return shards;
  if (others.size() == 1) return others;
  Throw(ErrorCode::kNotFound,
        "{}: {} files of tensors, expected model.safetensors, ckpt.pt or one other; name the file",
        directory, others.size());
}

// All shards that the index names must be there.
void CheckIndex(const std::string& directory, const ForeignWeights& weights) {
  const std::string path = directory + "/model.safetensors.index.json";
  if (!FileExists(path)) return;
  const nlohmann::json index = ParseJson(ReadFile(path), path);
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (map == index.end() || !map->is_object()) {
    Throw(ErrorCode::kCorrupt, "{}: no \"weight_map\"", path);
  }
  for (const auto& [name, file] : map->items()) {
    if (weights.tensors.count(WithoutWrappers(name)) == 0) {
      Throw(ErrorCode::kNotFound, "{}: tensor '{}' should be in {}, but is not there", path, name,
            file.dump());
    }
  }
}

// Of a run of this program that has finished: results; the configuration is in config.json.
bool IsOwnSummary(const nlohmann::json& json) {
  return json.is_object() && json.value("format", nlohmann::json()) == "denseformer-summary";
}

// GPT-2's own classes leave "transformer." out.
void AddTransformerPrefix(ForeignWeights& weights) {
  if (weights.tensors.count("wte.weight") == 0) return;
  std::map<std::string, StoredTensor> renamed;
  for (auto& [name, tensor] : weights.tensors) {
    const bool bare = name.starts_with("wte.") || name.starts_with("wpe.") ||
                      name.starts_with("h.") || name.starts_with("ln_f.");
    renamed.emplace(bare ? "transformer." + name : name, std::move(tensor));
  }
  weights.tensors = std::move(renamed);
}

}  // namespace

std::set<std::string> ForeignWeights::names() const {
  std::set<std::string> all;
  for (const auto& [name, tensor] : tensors) all.insert(name);
  return all;
}

ForeignWeights OpenForeign(const std::string& path, const std::string& config_path) {
  if (!FileExists(path)) Throw(ErrorCode::kNotFound, "import: no such file or directory: {}", path);
  ForeignWeights weights;
  const bool directory = fs::is_directory(path);
  weights.directory = directory ? path : fs::path(path).parent_path().string();
  if (weights.directory.empty()) weights.directory = ".";
  const std::vector<std::string> files = directory ? FilesOf(path) : std::vector<std::string>{path};
  weights.path = files.size() == 1 ? files[0] : path;
  for (const std::string& file : files) AddFile(weights, file);
  if (files.size() > 1) CheckIndex(path, weights);
  AddTransformerPrefix(weights);
  std::vector<std::string> candidates = {config_path};
  if (config_path.empty()) {
    candidates = {weights.directory + "/summary.json", weights.directory + "/config.json"};
  }
  for (const std::string& candidate : candidates) {
    if (config_path.empty() && !FileExists(candidate)) continue;
    nlohmann::json config = ParseJson(ReadFile(candidate, size_t{1} << 28), candidate);
    if (config_path.empty() && IsOwnSummary(config)) continue;
    weights.config_path = candidate;
    weights.config = std::move(config);
    break;
  }
  return weights;
}

}  // namespace denseformer
