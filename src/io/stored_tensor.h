// A tensor as a file holds it: any element type, any strides, bytes that belong to the file.
#ifndef DENSEFORMER_IO_STORED_TENSOR_H_
#define DENSEFORMER_IO_STORED_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace denseformer {

enum class StoredType {
  kF64,
  kF32,
  kF16,
  kBF16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool
};

// The name in a safetensors header ("BF16"), and back; nothing for a name that is not known.
const char* StoredTypeName(StoredType type);
std::optional<StoredType> ParseStoredType(std::string_view name);
int64_t StoredTypeSize(StoredType type);

// The product of `shape`, times `factor`; nothing where it does not fit 63 bits or a dimension is
// negative.
std::optional<int64_t> CheckedProduct(const std::vector<int64_t>& shape, int64_t factor = 1);

// "[3, 768]".
std::string ShapeText(const std::vector<int64_t>& shape);

struct StoredTensor {
  std::string name;
  StoredType type = StoredType::kF32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;     // in elements, never negative; empty: C order
  const std::byte* data = nullptr;  // of the first element; may be unaligned

  // Elements. Whoever fills the struct has checked that they lie within the file.
  int64_t count() const { return *CheckedProduct(shape); }
};

// All elements in C order as fp32: exact for F32, F16, BF16 and small integers, else rounded to
// nearest. `out` has room for count() of them.
void ReadFloats(const StoredTensor& tensor, float* out);

// The value of a binary16 number.
float HalfToFloat(uint16_t bits);

}  // namespace denseformer

#endif  // DENSEFORMER_IO_STORED_TENSOR_H_
