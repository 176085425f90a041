// Element types: fp32 for sums and master weights, bf16 for what the matrix units read.
#ifndef DENSEFORMER_TENSOR_DTYPE_H_
#define DENSEFORMER_TENSOR_DTYPE_H_

#include <bit>
#include <cstddef>
#include <cstdint>

namespace denseformer {

enum class DType : uint8_t { kF32, kBF16 };

// bfloat16: the upper half of an fp32. Conversion rounds to nearest even and keeps NaN a NaN.
struct bf16 {
  uint16_t bits = 0;

  bf16() = default;
  explicit bf16(float value) {
    const uint32_t raw = std::bit_cast<uint32_t>(value);
    if ((raw & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<uint16_t>((raw >> 16) | 0x40u);
    } else {
      bits = static_cast<uint16_t>((raw + 0x7fffu + ((raw >> 16) & 1u)) >> 16);
    }
  }
  explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};
static_assert(sizeof(bf16) == 2);

constexpr size_t SizeOf(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }
constexpr const char* DTypeName(DType dtype) { return dtype == DType::kF32 ? "fp32" : "bf16"; }

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::kBF16;
};

}  // namespace denseformer

#endif  // DENSEFORMER_TENSOR_DTYPE_H_
