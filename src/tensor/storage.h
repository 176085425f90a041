// Owned memory: aligned, zeroed, on huge pages where it is large.
#ifndef DENSEFORMER_TENSOR_STORAGE_H_
#define DENSEFORMER_TENSOR_STORAGE_H_

#include <cstddef>

#include "tensor/tensor.h"

namespace denseformer {

// Rows of kernels may be read in whole vectors of this many bytes.
inline constexpr size_t kAlignment = 64;

// A zeroed block of memory, aligned to kAlignment (2 MiB where it is larger than that, so that the
// kernel can back it with huge pages).
class Storage {
 public:
  Storage() = default;
  explicit Storage(size_t bytes);  // throws kUnsupported where the memory cannot be had
  // The same with any content: memory is taken from the system only where it is written.
  static Storage Unwritten(size_t bytes);
  // What a block of `bytes` takes when all of it is written.
  static size_t TakenBytes(size_t bytes);
  ~Storage();
  Storage(Storage&& other) noexcept;
  Storage& operator=(Storage&& other) noexcept;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void Allocate(size_t bytes);

  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// Hands out tensors one behind the other. An arena made without storage only measures: run the same
// plan twice, first to learn the size, then to place the tensors. Tensors begin at multiples of
// kAlignment; memory is zero when it is handed out for the first time.
class Arena {
 public:
  Arena() = default;  // measures
  explicit Arena(size_t bytes) : storage_(bytes), measuring_(false) {}

  Tensor Allocate(DType dtype, Shape shape);
  size_t used() const { return used_; }
  bool measuring() const { return measuring_; }

  // Memory handed out after Mark() can be handed out again after Release(mark): for scratch whose
  // life is nested.
  size_t Mark() const { return used_; }
  void Release(size_t mark) {
    DF_CHECK(mark <= used_);
    used_ = mark;
  }
  size_t peak() const { return peak_; }

 private:
  Storage storage_;
  bool measuring_ = true;
  size_t used_ = 0, peak_ = 0;
};

}  // namespace denseformer

#endif  // DENSEFORMER_TENSOR_STORAGE_H_
