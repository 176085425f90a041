#include "io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "io/strict_json.h"
#include "kernels/gemm/frozen.h"
#include "tensor/dtype.h"

namespace denseformer {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMostHeader = 100'000'000;
constexpr const char* kMetadataKey = "__metadata__";
constexpr const char* kHashKey = "xxh3";

// A tensor of the header with its place in the data.
struct Placed {
  StoredTensor tensor;
  uint64_t begin = 0, end = 0;
};

uint64_t UnsignedOf(const Json& value, const std::string& where, const char* what) {
  if (!value.is_number_unsigned()) {
    Throw(ErrorCode::kCorrupt, "{}: {} is {}, expected a whole number", where, what, value.dump());
  }
  return value.get<uint64_t>();
}

Placed ParseTensor(const std::string& name, const Json& entry, const std::string& path) {
  const std::string where = fmt::format("{}: tensor '{}'", path, name);
  if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") ||
      !entry.contains("shape") || !entry.contains("data_offsets")) {
    Throw(ErrorCode::kCorrupt, "{}: expected an object of dtype, shape and data_offsets", where);
  }
  Placed placed;
  placed.tensor.name = name;
  const Json& type = entry["dtype"];
  const auto parsed = ParseStoredType(type.is_string() ? type.get<std::string>() : "");
  if (!parsed) {
    Throw(type.is_string() ? ErrorCode::kUnsupported : ErrorCode::kCorrupt,
          "{}: dtype {} is not known here", where, type.dump());
  }
  placed.tensor.type = *parsed;
  const Json &shape = entry["shape"], &offsets = entry["data_offsets"];
  if (!shape.is_array() || shape.size() > 64) {
    Throw(ErrorCode::kCorrupt, "{}: shape is not a list of up to 64 numbers", where);
  }
  for (const Json& dim : shape) {
    const uint64_t value = UnsignedOf(dim, where, "a dimension");
    if (value > static_cast<uint64_t>(INT64_MAX)) {
      Throw(ErrorCode::kCorrupt, "{}: dimension {} is too large", where, value);
    }
    placed.tensor.shape.push_back(static_cast<int64_t>(value));
  }
  if (!offsets.is_array() || offsets.size() != 2) {
    Throw(ErrorCode::kCorrupt, "{}: data_offsets is not a list of two numbers", where);
  }
  placed.begin = UnsignedOf(offsets[0], where, "an offset");
  placed.end = UnsignedOf(offsets[1], where, "an offset");
  const auto bytes = CheckedProduct(placed.tensor.shape, StoredTypeSize(*parsed));
  if (!bytes) {
    Throw(ErrorCode::kCorrupt, "{}: shape {} overflows", where, ShapeText(placed.tensor.shape));
  }
  if (placed.end < placed.begin || placed.end - placed.begin != static_cast<uint64_t>(*bytes)) {
    Throw(ErrorCode::kCorrupt, "{}: data_offsets [{}, {}] do not fit shape {} of {} ({} bytes)",
          where, placed.begin, placed.end, ShapeText(placed.tensor.shape), StoredTypeName(*parsed),
          *bytes);
  }
  return placed;
}

std::map<std::string, std::string> ParseMetadata(const Json& json, const std::string& path) {
  std::map<std::string, std::string> metadata;
  if (!json.is_object()) Throw(ErrorCode::kCorrupt, "{}: __metadata__ is not an object", path);
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) {
      Throw(ErrorCode::kCorrupt, "{}: __metadata__ '{}' is not a string", path, key);
    }
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

// The header of a mapped file, between the length and the data.
std::string_view HeaderOf(const MappedFile& file) {
  if (file.size() < 8) {
    Throw(ErrorCode::kCorrupt, "{}: {} bytes, too short for a safetensors file", file.path(),
          file.size());
  }
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  if (length > kMostHeader) {
    Throw(ErrorCode::kCorrupt,
          "{}: header of {} bytes, expected at most {}; not a safetensors file?", file.path(),
          length, kMostHeader);
  }
  if (length > file.size() - 8) {
    Throw(ErrorCode::kCorrupt, "{}: header of {} bytes in a file of {}: the file is truncated",
          file.path(), length, file.size());
  }
  const std::string_view header(reinterpret_cast<const char*>(file.data()) + 8, length);
  if (header.empty() || header[0] != '{') {
    Throw(ErrorCode::kCorrupt, "{}: the header does not begin with '{{'", file.path());
  }
  return header;
}

// Calls use(pointer, bytes) for the elements of `tensor` as the file has them.
template <class F>
void ForEachPiece(const TensorToWrite& tensor, F&& use) {
  const int64_t count = *CheckedProduct(tensor.shape);
  if (tensor.type == StoredType::kF32) {
    use(tensor.data, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  if (tensor.type == StoredType::kI8) {
    DF_CHECK(tensor.shape.size() == 2);
    const int64_t columns = tensor.shape[1];
    std::vector<int8_t> row(static_cast<size_t>(columns));
    for (int64_t at = 0; at < count; at += columns) {
      QuantizeRow(tensor.data + at, columns, nullptr, row.data());
      use(row.data(), row.size());
    }
    return;
  }
  DF_CHECK(tensor.type == StoredType::kBF16);
  constexpr int64_t kPiece = 1 << 16;
  std::vector<bf16> piece(std::min(kPiece, count));
  for (int64_t begin = 0; begin < count; begin += kPiece) {
    const int64_t n = std::min(kPiece, count - begin);
    std::transform(tensor.data + begin, tensor.data + begin + n, piece.begin(),
                   [](float value) { return bf16(value); });
    use(piece.data(), static_cast<size_t>(n) * sizeof(bf16));
  }
}

// The part of the hash that is not tensor bytes: each field ends with a zero byte.
void HashDescription(Hasher& hasher, const std::map<std::string, std::string>& metadata) {
  for (const auto& [key, value] : metadata) {
    if (key != kHashKey) hasher.Add(key + '\0' + value + '\0');
  }
}

void HashTensorHead(Hasher& hasher, const std::string& name, StoredType type,
                    const std::vector<int64_t>& shape) {
  hasher.Add(name + '\0' + StoredTypeName(type) + '\0' + ShapeText(shape) + '\0');
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  const std::string_view header = HeaderOf(file_);
  // A tensor is an object of two lists: nothing is deeper.
  const Json json = ParseJson(header, path, {.depth = 3, .values = 20'000'000});
  std::vector<Placed> placed;
  for (const auto& [name, entry] : json.items()) {
    if (name == kMetadataKey) {
      metadata_ = ParseMetadata(entry, path);
    } else {
      placed.push_back(ParseTensor(name, entry, path));
    }
  }
  std::sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) {
    return std::tie(a.begin, a.end, a.tensor.name) < std::tie(b.begin, b.end, b.tensor.name);
  });
  const std::byte* data = file_.data() + 8 + header.size();
  const uint64_t data_size = file_.size() - 8 - header.size();
  uint64_t at = 0;
  for (Placed& p : placed) {
    if (p.begin != at) {
      Throw(ErrorCode::kCorrupt, "{}: tensor '{}' begins at {}, expected {}: {} in the data", path,
            p.tensor.name, p.begin, at, p.begin > at ? "a hole" : "an overlap");
    }
    if (p.end > data_size) {
      Throw(ErrorCode::kCorrupt, "{}: tensor '{}' ends at {} but the data has {} bytes: truncated",
            path, p.tensor.name, p.end, data_size);
    }
    at = p.end;
    p.tensor.data = data + p.begin;
    by_name_[p.tensor.name] = tensors_.size();
    tensors_.push_back(std::move(p.tensor));
  }
  if (at != data_size) {
    Throw(ErrorCode::kCorrupt, "{}: {} bytes after the last tensor", path, data_size - at);
  }
}

const StoredTensor* SafetensorsFile::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

bool SafetensorsFile::has_hash() const { return metadata_.count(kHashKey) > 0; }

void SafetensorsFile::VerifyHash() const {
  DF_CHECK(has_hash());
  Hasher hasher;
  HashDescription(hasher, metadata_);
  for (const StoredTensor& tensor : tensors_) {
    HashTensorHead(hasher, tensor.name, tensor.type, tensor.shape);
    constexpr size_t kPiece = size_t{16} << 20;
    const size_t size = static_cast<size_t>(tensor.count() * StoredTypeSize(tensor.type));
    for (size_t at = 0; at < size; at += kPiece) {
      const size_t n = std::min(kPiece, size - at);
      hasher.Add(tensor.data + at, n);
      file_.Drop(tensor.data + at, n);
    }
  }
  if (const std::string hash = hasher.Hex(); hash != metadata_.at(kHashKey)) {
    Throw(ErrorCode::kCorrupt, "{}: hash of the content is {}, expected {}: the file was altered",
          path(), hash, metadata_.at(kHashKey));
  }
}

void SafetensorsFile::Drop(const StoredTensor& tensor) const {
  file_.Drop(tensor.data, static_cast<size_t>(tensor.count() * StoredTypeSize(tensor.type)));
}

void WriteSafetensors(std::span<const TensorToWrite> tensors,
                      const std::map<std::string, std::string>& metadata, const ByteSink& sink) {
  Hasher hasher;
  HashDescription(hasher, metadata);
  Json json;
  uint64_t at = 0;
  for (const TensorToWrite& tensor : tensors) {
    HashTensorHead(hasher, tensor.name, tensor.type, tensor.shape);
    uint64_t bytes = 0;
    ForEachPiece(tensor, [&](const void* data, size_t size) {
      hasher.Add(data, size);
      bytes += size;
    });
    DF_CHECK_MSG(tensor.name != kMetadataKey && !json.contains(tensor.name) && bytes > 0, "'{}'",
                 tensor.name);
    json[tensor.name] = {{"dtype", StoredTypeName(tensor.type)},
                         {"shape", tensor.shape},
                         {"data_offsets", {at, at + bytes}}};
    at += bytes;
  }
  json[kMetadataKey] = metadata;
  json[kMetadataKey][kHashKey] = hasher.Hex();
  std::string header = json.dump();
  header.resize((header.size() + 7) / 8 * 8, ' ');
  DF_CHECK(header.size() <= kMostHeader);
  const uint64_t length = header.size();
  sink(&length, sizeof(length));
  sink(header.data(), header.size());
  for (const TensorToWrite& tensor : tensors) ForEachPiece(tensor, sink);
}

}  // namespace denseformer
