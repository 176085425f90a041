// How a frozen model (model/model.h) holds its matrices.
#ifndef DENSEFORMER_TENSOR_WEIGHT_FORMAT_H_
#define DENSEFORMER_TENSOR_WEIGHT_FORMAT_H_

#include <cstdint>

#include "tensor/dtype.h"

namespace denseformer {

enum class WeightFormat : uint8_t {
  kF32,
  kBF16,
  kInt8,  // 8-bit integers with one fp32 scale per row
};

constexpr const char* WeightFormatName(WeightFormat format) {
  constexpr const char* kNames[] = {"fp32", "bf16", "int8"};
  return kNames[static_cast<int>(format)];
}

// The element type of activations beside weights of a format.
constexpr DType ComputeOf(WeightFormat format) {
  return format == WeightFormat::kF32 ? DType::kF32 : DType::kBF16;
}
constexpr WeightFormat FormatOf(DType compute) {
  return compute == DType::kF32 ? WeightFormat::kF32 : WeightFormat::kBF16;
}

}  // namespace denseformer

#endif  // DENSEFORMER_TENSOR_WEIGHT_FORMAT_H_
