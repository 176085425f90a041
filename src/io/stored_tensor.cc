#include "io/stored_tensor.h"

#include <fmt/ranges.h>

#include <bit>
#include <cstring>
#include <iterator>

#include "base/error.h"
#include "base/parallel.h"
#include "tensor/dtype.h"

namespace denseformer {
namespace {

struct TypeRow {
  StoredType type;
  const char* name;
  int64_t size;
};

constexpr TypeRow kTypes[] = {
    {StoredType::kF64, "F64", 8},   {StoredType::kF32, "F32", 4}, {StoredType::kF16, "F16", 2},
    {StoredType::kBF16, "BF16", 2}, {StoredType::kI64, "I64", 8}, {StoredType::kI32, "I32", 4},
    {StoredType::kI16, "I16", 2},   {StoredType::kI8, "I8", 1},   {StoredType::kU64, "U64", 8},
    {StoredType::kU32, "U32", 4},   {StoredType::kU16, "U16", 2}, {StoredType::kU8, "U8", 1},
    {StoredType::kBool, "BOOL", 1},
};

const TypeRow& Row(StoredType type) {
  const TypeRow& row = kTypes[static_cast<int>(type)];
  DF_CHECK(row.type == type);
  return row;
}

template <class T>
float Convert(T value) {
  return static_cast<float>(value);
}

struct Half {
  uint16_t bits;
};
float Convert(Half value) { return HalfToFloat(value.bits); }

template <class T>
float ElementAt(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return Convert(value);
}

// `n` elements that lie `stride` apart.
template <class T>
void ReadRow(const std::byte* from, int64_t n, int64_t stride, float* out) {
  constexpr int64_t kSize = sizeof(T);
  if (stride == 1) {  // a loop of its own: compilers know the distance
    for (int64_t i = 0; i < n; ++i) out[i] = ElementAt<T>(from + i * kSize);
    return;
  }
  for (int64_t i = 0; i < n; ++i) out[i] = ElementAt<T>(from + i * stride * kSize);
}

using RowReader = void (*)(const std::byte*, int64_t, int64_t, float*);

RowReader ReaderOf(StoredType type) {
  switch (type) {
    case StoredType::kF64:
      return ReadRow<double>;
    case StoredType::kF32:
      return ReadRow<float>;
    case StoredType::kF16:
      return ReadRow<Half>;
    case StoredType::kBF16:
      return ReadRow<bf16>;
    case StoredType::kI64:
      return ReadRow<int64_t>;
    case StoredType::kI32:
      return ReadRow<int32_t>;
    case StoredType::kI16:
      return ReadRow<int16_t>;
    case StoredType::kI8:
      return ReadRow<int8_t>;
    case StoredType::kU64:
      return ReadRow<uint64_t>;
    case StoredType::kU32:
      return ReadRow<uint32_t>;
    case StoredType::kU16:
      return ReadRow<uint16_t>;
    case StoredType::kU8:
    case StoredType::kBool:
      return ReadRow<uint8_t>;
  }
  DF_CHECK(false);
}

bool IsContiguous(const StoredTensor& tensor) {
  int64_t expected = 1;
  for (size_t d = tensor.strides.size(); d-- > 0;) {
    if (tensor.shape[d] != 1 && tensor.strides[d] != expected) return false;
    expected *= tensor.shape[d];
  }
  return true;
}

}  // namespace

static_assert(std::endian::native == std::endian::little, "files are little-endian");

const char* StoredTypeName(StoredType type) { return Row(type).name; }
int64_t StoredTypeSize(StoredType type) { return Row(type).size; }

std::optional<StoredType> ParseStoredType(std::string_view name) {
  for (const TypeRow& row : kTypes) {
    if (name == row.name) return row.type;
  }
  return std::nullopt;
}

std::optional<int64_t> CheckedProduct(const std::vector<int64_t>& shape, int64_t factor) {
  int64_t product = factor;
  for (const int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(product, dim, &product)) return std::nullopt;
  }
  return product;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

float HalfToFloat(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu, fraction = bits & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 31 ? 0xffu : exponent + (127 - 15);
  return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
}

void ReadFloats(const StoredTensor& tensor, float* out) {
  const int64_t count = tensor.count();
  if (count == 0) return;
  const RowReader read = ReaderOf(tensor.type);
  const int64_t size = StoredTypeSize(tensor.type);
  if (IsContiguous(tensor)) {
    ParallelFor(count, 1 << 16, [&](int64_t begin, int64_t end, int) {
      if (tensor.type == StoredType::kF32) {
        std::memcpy(out + begin, tensor.data + begin * size, (end - begin) * sizeof(float));
      } else {
        read(tensor.data + begin * size, end - begin, 1, out + begin);
      }
    });
    return;
  }
  // Row after row, the last dimension being the row; `index` counts the others.
  const size_t last = tensor.shape.size() - 1;
  const int64_t cols = tensor.shape[last];
  std::vector<int64_t> index(last, 0);
  for (int64_t row = 0; row < count / cols; ++row) {
    int64_t offset = 0;
    for (size_t d = 0; d < last; ++d) offset += index[d] * tensor.strides[d];
    read(tensor.data + offset * size, cols, tensor.strides[last], out + row * cols);
    for (size_t d = last; d-- > 0;) {
      if (++index[d] < tensor.shape[d]) break;
      index[d] = 0;
    }
  }
}

}  // namespace denseformer
