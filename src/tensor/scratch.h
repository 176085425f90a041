// Scratch memory of the calling thread: allocated on first use, kept for the next call, so that a
// steady state allocates nothing.
#ifndef DENSEFORMER_TENSOR_SCRATCH_H_
#define DENSEFORMER_TENSOR_SCRATCH_H_

#include <cstddef>

#include "tensor/storage.h"

namespace denseformer {

// At least `bytes` bytes, aligned to kAlignment, with any content; grows where an earlier call
// asked for less. The next call on the same thread hands out the same memory: one kernel at a time
// uses it, and no kernel keeps it.
void* ThreadScratch(size_t bytes);

// Cuts one piece of scratch after the other out of a block. Made without a block it only measures:
// run the same plan twice, first to learn the size, then to place the pieces.
class ScratchPlan {
 public:
  explicit ScratchPlan(void* block = nullptr) : block_(static_cast<char*>(block)) {}

  template <class T>
  T* Take(size_t count) {
    T* const piece = block_ == nullptr ? nullptr : reinterpret_cast<T*>(block_ + used_);
    used_ += (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    return piece;
  }
  size_t used() const { return used_; }

 private:
  char* block_;
  size_t used_ = 0;
};

}  // namespace denseformer

#endif  // DENSEFORMER_TENSOR_SCRATCH_H_
