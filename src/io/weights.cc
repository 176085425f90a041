#include "io/weights.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "io/run_directory.h"
#include "model/config_fields.h"

namespace denseformer {
namespace {

constexpr const char* kConfigKey = "config";

// The fields of a configuration as text; the depth pattern as the sources that it means.
std::map<std::string, std::string> FieldTexts(const ModelConfig& config) {
  std::map<std::string, std::string> texts;
  VisitFields(config, [&](const char* name, const auto& field, const char*) {
    texts[name] = fmt::format("{}", field);
  });
  return texts;
}

bool SamePattern(const ModelConfig& a, const ModelConfig& b) {
  return a.n_layer == b.n_layer &&
         DepthPattern::Parse(a.dwa, a.n_layer) == DepthPattern::Parse(b.dwa, b.n_layer);
}

}  // namespace

std::string FirstOf(const std::vector<std::string>& problems) {
  constexpr size_t kMost = 5;
  const std::vector<std::string> first(problems.begin(),
                                       problems.begin() + std::min(kMost, problems.size()));
  std::string text = Join(first, "; ");
  if (problems.size() > kMost) text += fmt::format("; and {} more", problems.size() - kMost);
  return text;
}

std::vector<int64_t> DimsOf(const Shape& shape) {
  std::vector<int64_t> dims;
  for (int d = 0; d < shape.rank(); ++d) dims.push_back(shape[d]);
  return dims;
}

std::vector<TensorToWrite> TensorsOf(const ParameterTable& table, const NamedBuffer& buffer,
                                     StoredType type) {
  std::vector<TensorToWrite> tensors;
  for (const Parameter& parameter : table.all()) {
    tensors.push_back({buffer.prefix + parameter.name, type, DimsOf(parameter.shape),
                       buffer.data + parameter.offset});
  }
  return tensors;
}

std::map<std::string, std::string> WeightsMetadata(const ModelConfig& config) {
  return {{"format", "pt"}, {"model_type", "denseformer"}, {kConfigKey, ConfigToJson(config)}};
}

void VerifyWeights(const SafetensorsFile& file) {
  if (file.has_hash()) {
    file.VerifyHash();
  } else if (file.metadata().count(kConfigKey) > 0) {
    Throw(ErrorCode::kCorrupt, "{}: the hash of its content is missing: the file was altered",
          file.path());
  }
}

void CheckSameModel(const SafetensorsFile& file, const ModelConfig& config) {
  const auto found = file.metadata().find(kConfigKey);
  if (found == file.metadata().end()) return;
  const ModelConfig stored =
      ConfigFromJson(found->second, file.path() + ": configuration in the metadata");
  const auto theirs = FieldTexts(stored), ours = FieldTexts(config);
  std::vector<std::string> problems;
  for (const auto& [name, text] : theirs) {
    if (text == ours.at(name) || (name == "dwa" && SamePattern(stored, config))) continue;
    problems.push_back(fmt::format("{} = {}, expected {}", name, text, ours.at(name)));
  }
  if (!problems.empty()) {
    Throw(ErrorCode::kInvalid, "{}: weights of another model: {}", file.path(), FirstOf(problems));
  }
}

void ReadWeights(const SafetensorsFile& file, const ParameterTable& table,
                 std::span<const NamedBuffer> buffers) {
  std::vector<std::string> problems;
  std::set<std::string_view> used;
  for (const NamedBuffer& buffer : buffers) {
    for (const Parameter& parameter : table.all()) {
      const std::string name = buffer.prefix + parameter.name;
      const StoredTensor* tensor = file.Find(name);
      if (tensor == nullptr) {
        problems.push_back(fmt::format("'{}' is missing", name));
        continue;
      }
      used.insert(tensor->name);
      if (tensor->shape != DimsOf(parameter.shape)) {
        problems.push_back(fmt::format("'{}' is {}, expected {}", name, ShapeText(tensor->shape),
                                       parameter.shape.ToString()));
      }
    }
  }
  for (const StoredTensor& tensor : file.tensors()) {
    if (used.count(tensor.name) == 0) {
      problems.push_back(fmt::format("'{}' is no parameter of this model", tensor.name));
    }
  }
  if (!problems.empty()) {
    Throw(ErrorCode::kInvalid, "{}: does not fit the model: {}", file.path(), FirstOf(problems));
  }
  for (const NamedBuffer& buffer : buffers) {
    std::fill_n(buffer.data, table.buffer_size(), 0.0f);
    for (const Parameter& parameter : table.all()) {
      ReadFloats(*file.Find(buffer.prefix + parameter.name), buffer.data + parameter.offset);
    }
  }
}

}  // namespace denseformer
