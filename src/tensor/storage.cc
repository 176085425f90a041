#include "tensor/storage.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/parallel.h"
#include "base/text.h"

namespace denseformer {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

size_t Storage::TakenBytes(size_t bytes) {
  return RoundUp(bytes, bytes >= kHugePage ? kHugePage : kAlignment);
}

void Storage::Allocate(size_t bytes) {
  const bool huge = bytes >= kHugePage;
  const size_t taken = TakenBytes(bytes);
  data_ = taken < bytes ? nullptr : std::aligned_alloc(huge ? kHugePage : kAlignment, taken);
  if (data_ == nullptr) {
    Throw(ErrorCode::kUnsupported, "not enough memory: {} asked for; use a smaller batch or model",
          HumanBytes(static_cast<double>(bytes)));
  }
  bytes_ = bytes;
  if (huge) madvise(data_, taken, MADV_HUGEPAGE);
}

Storage Storage::Unwritten(size_t bytes) {
  Storage storage;
  if (bytes > 0) storage.Allocate(bytes);
  return storage;
}

Storage::Storage(size_t bytes) {
  if (bytes == 0) return;
  Allocate(bytes);
  if (bytes < kHugePage) {
    std::memset(data_, 0, TakenBytes(bytes));
    return;
  }
  // On all threads: most of the time goes to the system, which finds and clears a page at a time.
  ParallelFor(static_cast<int64_t>(TakenBytes(bytes) / kHugePage), /*grain=*/16,
              [this](int64_t begin, int64_t end, int) {
                constexpr int64_t kPage = kHugePage;
                std::memset(static_cast<char*>(data_) + begin * kPage, 0, (end - begin) * kPage);
              });
}

Storage::~Storage() { std::free(data_); }

Storage::Storage(Storage&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Storage& Storage::operator=(Storage&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Tensor Arena::Allocate(DType dtype, Shape shape) {
  const size_t offset = used_;
  size_t bytes = 0;
  DF_CHECK(!__builtin_mul_overflow(static_cast<size_t>(shape.count()), SizeOf(dtype), &bytes) &&
           bytes <= SIZE_MAX / 2 && used_ <= SIZE_MAX / 2 - kAlignment);
  used_ += RoundUp(bytes, kAlignment);
  peak_ = std::max(peak_, used_);
  // A measuring arena gives tensors with a shape but no memory; nobody may touch them.
  if (measuring_) return Tensor(nullptr, dtype, shape);
  DF_CHECK_MSG(used_ <= storage_.bytes(), "arena of {} bytes", storage_.bytes());
  return Tensor(static_cast<char*>(storage_.data()) + offset, dtype, shape);
}

}  // namespace denseformer
