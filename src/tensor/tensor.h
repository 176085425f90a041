// Shapes and views. A Tensor does not own its memory (Arena or Storage does) and is cheap to copy.
// All tensors are contiguous in C order.
#ifndef DENSEFORMER_TENSOR_TENSOR_H_
#define DENSEFORMER_TENSOR_TENSOR_H_

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "base/error.h"
#include "tensor/dtype.h"

namespace denseformer {

class Shape {
 public:
  static constexpr int kMostDims = 4;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) {
    for (int64_t dim : dims) Append(dim);
  }

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[i]; }
  void Append(int64_t dim) {
    DF_CHECK(rank_ < kMostDims && dim >= 0);
    dims_[rank_++] = dim;
  }
  int64_t count() const {
    int64_t product = 1;
    for (int i = 0; i < rank_; ++i) {
      DF_CHECK(!__builtin_mul_overflow(product, dims_[i], &product));
    }
    return product;
  }
  bool operator==(const Shape& other) const = default;
  std::string ToString() const;  // "[3, 768]"

 private:
  std::array<int64_t, kMostDims> dims_{};
  int rank_ = 0;
};

class Tensor {
 public:
  Tensor() = default;
  Tensor(void* data, DType dtype, Shape shape) : data_(data), dtype_(dtype), shape_(shape) {}
  template <class T>
  Tensor(T* data, Shape shape) : Tensor(data, DTypeOf<T>::value, shape) {}

  bool empty() const { return data_ == nullptr; }
  void* raw() const { return data_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t count() const { return shape_.count(); }
  size_t bytes() const { return static_cast<size_t>(count()) * SizeOf(dtype_); }

  // As a matrix: the last dimension is a row, all others together number the rows.
  int64_t cols() const { return shape_.rank() == 0 ? 1 : shape_[shape_.rank() - 1]; }
  int64_t rows() const { return cols() == 0 ? 0 : count() / cols(); }

  // The elements as T (float or bf16, maybe const); the dtype must match.
  template <class T>
  T* As() const {
    DF_CHECK_MSG(DTypeOf<std::remove_const_t<T>>::value == dtype_, "tensor is {}",
                 DTypeName(dtype_));
    return static_cast<T*>(data_);
  }
  float* f32() const { return As<float>(); }

  // Rows [begin, begin + n) as a matrix.
  Tensor Rows(int64_t begin, int64_t n) const {
    DF_CHECK(begin >= 0 && n >= 0 && begin + n <= rows());
    // A measured tensor has no memory to point into.
    char* data = static_cast<char*>(data_);
    if (data != nullptr) data += begin * cols() * static_cast<int64_t>(SizeOf(dtype_));
    return Tensor(data, dtype_, {n, cols()});
  }
  Tensor Reshape(Shape shape) const {
    DF_CHECK(shape.count() == count());
    return Tensor(data_, dtype_, shape);
  }

 private:
  void* data_ = nullptr;
  DType dtype_ = DType::kF32;
  Shape shape_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_TENSOR_TENSOR_H_
