#include "io/pytorch_file.h"

#include <map>
#include <optional>

#include "base/error.h"
#include "base/text.h"

namespace denseformer {
namespace {

constexpr size_t kMostDims = 8;

struct TypeRow {
  const char* name;
  StoredType type;
};

// Storage types and dtypes by name.
constexpr TypeRow kTypes[] = {
    {"torch.DoubleStorage", StoredType::kF64},
    {"torch.FloatStorage", StoredType::kF32},
    {"torch.HalfStorage", StoredType::kF16},
    {"torch.BFloat16Storage", StoredType::kBF16},
    {"torch.LongStorage", StoredType::kI64},
    {"torch.IntStorage", StoredType::kI32},
    {"torch.ShortStorage", StoredType::kI16},
    {"torch.CharStorage", StoredType::kI8},
    {"torch.ByteStorage", StoredType::kU8},
    {"torch.BoolStorage", StoredType::kBool},
    {"torch.storage.UntypedStorage", StoredType::kU8},
    {"torch.storage._UntypedStorage", StoredType::kU8},
    {"torch.float64", StoredType::kF64},
    {"torch.float32", StoredType::kF32},
    {"torch.float16", StoredType::kF16},
    {"torch.bfloat16", StoredType::kBF16},
    {"torch.int64", StoredType::kI64},
    {"torch.int32", StoredType::kI32},
    {"torch.int16", StoredType::kI16},
    {"torch.int8", StoredType::kI8},
    {"torch.uint64", StoredType::kU64},
    {"torch.uint32", StoredType::kU32},
    {"torch.uint16", StoredType::kU16},
    {"torch.uint8", StoredType::kU8},
    {"torch.bool", StoredType::kBool},
};

std::optional<StoredType> TypeOf(const PickleValue& global) {
  if (global.kind != PickleKind::kGlobal) return std::nullopt;
  for (const TypeRow& row : kTypes) {
    if (global.text == row.name) return row.type;
  }
  return std::nullopt;
}

// Refuses what is no archive, with the remedy for the format of old versions.
const std::string& CheckedKind(const std::string& path) {
  if (!ZipReader::LooksLikeZip(path)) {
    Throw(ErrorCode::kInvalid,
          "{}: no ZIP archive, so not made by torch.save since PyTorch 1.6; where it is an older "
          "file, load and save it again with PyTorch",
          path);
  }
  return path;
}

// The name of the archive's folder, with '/'.
std::string FindPrefix(const ZipReader& zip) {
  constexpr std::string_view kPickle = "data.pkl";
  std::vector<std::string> found;
  for (const auto& [name, entry] : zip.entries()) {
    if (!name.ends_with(kPickle)) continue;
    const std::string prefix = name.substr(0, name.size() - kPickle.size());
    if (prefix.empty() || prefix.find('/') == prefix.size() - 1) found.push_back(prefix);
  }
  if (found.size() != 1) {
    Throw(ErrorCode::kInvalid,
          "{}: {} entries NAME/data.pkl, expected one: not made by torch.save?", zip.path(),
          found.size());
  }
  if (zip.entries().count(found[0] + "constants.pkl") > 0) {
    Throw(ErrorCode::kUnsupported,
          "{}: a TorchScript archive holds code; save model.state_dict() instead", zip.path());
  }
  return found[0];
}

std::optional<std::vector<int64_t>> IntsOf(const Pickle& pickle, const PickleValue& tuple) {
  if (tuple.kind != PickleKind::kTuple || tuple.items.size() > kMostDims) return std::nullopt;
  std::vector<int64_t> ints;
  for (const uint32_t item : tuple.items) {
    const PickleValue& value = pickle.at(item);
    if (value.kind != PickleKind::kInt || value.number < 0) return std::nullopt;
    ints.push_back(value.number);
  }
  return ints;
}

// The number of elements from the first to the last that a view touches; nothing on overflow.
std::optional<int64_t> Extent(const std::vector<int64_t>& shape,
                              const std::vector<int64_t>& strides) {
  int64_t extent = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 0) return 0;
    int64_t span = 0;
    if (__builtin_mul_overflow(shape[d] - 1, strides[d], &span) ||
        __builtin_add_overflow(extent, span, &extent)) {
      return std::nullopt;
    }
  }
  return extent;
}

const PickleValue& FindStateDict(const Pickle& pickle, const std::string& path) {
  const PickleValue& root = pickle.root();
  if (root.kind != PickleKind::kDict) {
    Throw(ErrorCode::kInvalid, "{}: the top level is not a dict, expected a state dict", path);
  }
  for (const char* key : {"model", "state_dict", "model_state_dict"}) {
    const PickleValue* found = pickle.Find(root, key);
    if (found != nullptr && found->kind == PickleKind::kDict) return *found;
  }
  return root;
}

}  // namespace

PytorchFile::PytorchFile(const std::string& path)
    : zip_(CheckedKind(path)), prefix_(FindPrefix(zip_)) {
  if (zip_.entries().count(prefix_ + "byteorder") > 0) {
    const std::string_view order = Trim(zip_.Content(prefix_ + "byteorder"));
    if (order != "little") {
      Throw(ErrorCode::kUnsupported, "{}: byte order '{}', expected little", path, order);
    }
  }
  const Pickle pickle(zip_.Content(prefix_ + "data.pkl"), path);
  const PickleValue& state_dict = FindStateDict(pickle, path);
  std::map<std::string, size_t> by_name;  // a key set twice means the last value, as in Python
  for (size_t i = 0; i < state_dict.items.size(); i += 2) {
    const PickleValue& key = pickle.at(state_dict.items[i]);
    const PickleValue& value = pickle.at(state_dict.items[i + 1]);
    if (key.kind != PickleKind::kText || value.kind != PickleKind::kTensor) {
      Throw(ErrorCode::kInvalid, "{}: entry {} of the state dict is not a named tensor", path,
            key.kind == PickleKind::kText ? "'" + key.text + "'" : std::to_string(i / 2));
    }
    StoredTensor tensor = TensorOf(pickle, key.text, value);
    const auto [at, fresh] = by_name.emplace(key.text, tensors_.size());
    if (fresh) {
      tensors_.push_back(std::move(tensor));
    } else {
      tensors_[at->second] = std::move(tensor);
    }
  }
}

StoredTensor PytorchFile::TensorOf(const Pickle& pickle, const std::string& name,
                                   const PickleValue& value) {
  auto fail = [&](const std::string& why) {
    Throw(ErrorCode::kCorrupt, "{}: tensor '{}': {}", zip_.path(), name, why);
  };
  // (storage, offset, size, stride, requires_grad, hooks[, dtype in v3 | metadata])
  const std::vector<uint32_t>& arguments = value.items;
  if (arguments.size() < 4) fail("too few arguments");
  const PickleValue& storage = pickle.at(arguments[0]);
  if (storage.kind != PickleKind::kPersistent) fail("no storage");
  // ('storage', type, key, device, count)
  const PickleValue& id = pickle.at(storage.items[0]);
  if (id.kind != PickleKind::kTuple || id.items.size() < 5) fail("malformed storage");
  const PickleValue &tag = pickle.at(id.items[0]), &key = pickle.at(id.items[2]),
                    &numel = pickle.at(id.items[4]);
  const auto storage_type = TypeOf(pickle.at(id.items[1]));
  if (tag.text != "storage" || !storage_type || key.kind != PickleKind::kText ||
      numel.kind != PickleKind::kInt || numel.number < 0) {
    fail("malformed storage");
  }
  StoredTensor tensor;
  tensor.name = name;
  tensor.type = *storage_type;
  if (arguments.size() > 6) {
    if (const auto type = TypeOf(pickle.at(arguments[6]))) tensor.type = *type;
  }
  const PickleValue& offset = pickle.at(arguments[1]);
  const auto shape = IntsOf(pickle, pickle.at(arguments[2]));
  const auto strides = IntsOf(pickle, pickle.at(arguments[3]));
  if (offset.kind != PickleKind::kInt || offset.number < 0 || !shape || !strides ||
      shape->size() != strides->size()) {
    fail("malformed offset, size or stride");
  }
  tensor.shape = *shape;
  tensor.strides = *strides;
  const auto [found, fresh] = storages_.try_emplace(key.text);
  if (fresh) found->second = zip_.Content(prefix_ + "data/" + key.text);
  const std::string_view content = found->second;
  int64_t bytes = 0, end = 0;
  if (__builtin_mul_overflow(numel.number, StoredTypeSize(*storage_type), &bytes) ||
      static_cast<uint64_t>(bytes) > content.size()) {
    fail(fmt::format("storage of {} elements in an entry of {} bytes", numel.number,
                     content.size()));
  }
  const auto extent = Extent(*shape, *strides);
  const int64_t capacity = bytes / StoredTypeSize(tensor.type);
  if (!extent || !CheckedProduct(*shape, 8) ||
      __builtin_add_overflow(*extent, offset.number, &end) || end > capacity) {
    fail(fmt::format("size {}, stride {} and offset {} leave the storage of {} elements",
                     ShapeText(*shape), ShapeText(*strides), offset.number, capacity));
  }
  tensor.data = reinterpret_cast<const std::byte*>(content.data()) +
                offset.number * StoredTypeSize(tensor.type);
  return tensor;
}

}  // namespace denseformer
