#include "io/weights.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/parallel.h"
#include "base/text.h"
#include "io/run_directory.h"
#include "kernels/gemm/frozen.h"
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

// The scales beside a quantized matrix, or null.
const StoredTensor* ScaleTensor(const SafetensorsFile& file, const StoredTensor& tensor) {
  return tensor.type == StoredType::kI8 ? file.Find(tensor.name + kScaleSuffix) : nullptr;
}

// Multiplies a row of integers with its scale, which it returns.
float ScaleRow(const StoredTensor& scales, int64_t row, int64_t columns, float* values) {
  float scale;
  std::memcpy(&scale, scales.data + row * static_cast<int64_t>(sizeof(scale)), sizeof(scale));
  for (int64_t i = 0; i < columns; ++i) values[i] *= scale;
  return scale;
}

// Throws what ReadWeights says.
void CheckTensors(const SafetensorsFile& file, const ParameterTable& table,
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
      if (tensor->type != StoredType::kI8) continue;
      const StoredTensor* scales = ScaleTensor(file, *tensor);
      if (!parameter.matrix() || scales == nullptr || scales->type != StoredType::kF32 ||
          scales->shape != std::vector<int64_t>{parameter.shape[0]}) {
        problems.push_back(fmt::format("'{}' is I8, expected F32 [{}] beside it as '{}{}'", name,
                                       parameter.shape[0], name, kScaleSuffix));
        continue;
      }
      used.insert(scales->name);
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

std::vector<TensorToWrite> Int8TensorsOf(const ParameterTable& table, const NamedBuffer& buffer,
                                         std::vector<std::vector<float>>& scales) {
  std::vector<TensorToWrite> tensors;
  for (const TensorToWrite& tensor : TensorsOf(table, buffer)) {
    tensors.push_back(tensor);
    if (!table.Find(tensor.name.substr(buffer.prefix.size()))->matrix()) continue;
    tensors.back().type = StoredType::kI8;
    const int64_t columns = tensor.shape[1];
    std::vector<int8_t> row(static_cast<size_t>(columns));
    std::vector<float>& of_rows = scales.emplace_back();
    for (int64_t r = 0; r < tensor.shape[0]; ++r) {
      of_rows.push_back(QuantizeRow(tensor.data + r * columns, columns, nullptr, row.data()));
    }
    tensors.push_back(
        {tensor.name + kScaleSuffix, StoredType::kF32, {tensor.shape[0]}, of_rows.data()});
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

bool HasInt8(const SafetensorsFile& file, const ParameterTable& table) {
  return std::ranges::any_of(table.all(), [&](const Parameter& parameter) {
    const StoredTensor* tensor = parameter.matrix() ? file.Find(parameter.name) : nullptr;
    return tensor != nullptr && tensor->type == StoredType::kI8;
  });
}

void ReadWeights(const SafetensorsFile& file, const ParameterTable& table,
                 std::span<const NamedBuffer> buffers) {
  CheckTensors(file, table, buffers);
  for (const NamedBuffer& buffer : buffers) {
    std::fill_n(buffer.data, table.buffer_size(), 0.0f);
    for (const Parameter& parameter : table.all()) {
      const StoredTensor& tensor = *file.Find(buffer.prefix + parameter.name);
      float* const to = buffer.data + parameter.offset;
      ReadFloats(tensor, to);
      if (const StoredTensor* scales = ScaleTensor(file, tensor)) {
        const int64_t columns = parameter.shape[1];
        ParallelFor(parameter.shape[0], /*grain=*/16, [&](int64_t begin, int64_t end, int) {
          for (int64_t row = begin; row < end; ++row) {
            ScaleRow(*scales, row, columns, to + row * columns);
          }
        });
      }
    }
  }
}

void ReadFrozenWeights(const SafetensorsFile& file, Model& model) {
  const NamedBuffer names{"", nullptr};
  CheckTensors(file, model.table(), {&names, 1});
  const auto read = [&](const Parameter& parameter, int64_t first, int64_t count, float* values,
                        float* given) {
    const StoredTensor& tensor = *file.Find(parameter.name);
    const int64_t columns = tensor.shape.back();
    StoredTensor rows = tensor;
    rows.data += first * columns * StoredTypeSize(tensor.type);
    rows.shape = {count, columns};
    ReadFloats(rows, values);
    const StoredTensor* scales = ScaleTensor(file, tensor);
    for (int64_t r = 0; scales != nullptr && r < count; ++r) {
      given[r] = ScaleRow(*scales, first + r, columns, values + r * columns);
    }
    return scales != nullptr;
  };
  model.Fill(read, [&](const Parameter& parameter) { file.Drop(*file.Find(parameter.name)); });
}

}  // namespace denseformer
