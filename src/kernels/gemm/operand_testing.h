// A tensor of random numbers with its memory, for the tests of GEMMs; no part of the library.
#ifndef DENSEFORMER_KERNELS_GEMM_OPERAND_TESTING_H_
#define DENSEFORMER_KERNELS_GEMM_OPERAND_TESTING_H_

#include <cstring>

#include "base/random.h"
#include "tensor/storage.h"
#include "tensor/tensor.h"

namespace denseformer {

struct Operand {
  Operand(DType dtype, Shape shape, uint64_t seed = 2)
      : storage(static_cast<size_t>(shape.count()) * 4 + 64), tensor(storage.data(), dtype, shape) {
    Random random(seed);
    for (int64_t i = 0; i < shape.count(); ++i) Set(i, random.Normal());
  }
  void Set(int64_t i, float value) {
    if (tensor.dtype() == DType::kF32) {
      tensor.f32()[i] = value;
    } else {
      tensor.As<bf16>()[i] = bf16(value);
    }
  }
  double At(int64_t i) const {
    return tensor.dtype() == DType::kF32 ? tensor.f32()[i]
                                         : static_cast<float>(tensor.As<bf16>()[i]);
  }
  bool SameRow(int64_t row, const Operand& other, int64_t other_row) const {
    const Tensor a = tensor.Rows(row, 1), b = other.tensor.Rows(other_row, 1);
    return std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
  }

  Storage storage;
  Tensor tensor;
};

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_GEMM_OPERAND_TESTING_H_
