// Helpers of the kernels' tests: guarded misaligned buffers, comparison with reference values,
// bitwise equality over numbers of threads. No part of the library.
#ifndef DENSEFORMER_KERNELS_TESTING_H_
#define DENSEFORMER_KERNELS_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <vector>

#include "base/parallel.h"
#include "base/random.h"
#include "kernels/reference.h"
#include "tensor/tensor.h"

namespace denseformer::testing {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Row lengths around the vectors' and the blocks' sizes.
inline const std::vector<int64_t> kAwkwardSizes = {1,  2,  3,  4,  7,   8,   15,  16,  17,
                                                   31, 33, 63, 65, 129, 513, 768, 1000};

// A tensor that starts `offset` elements past an aligned address, between guards that the
// destructor checks: no kernel may write beyond its row.
class Buffer {
 public:
  Buffer(DType dtype, Shape shape, int64_t offset = 0) : dtype_(dtype), shape_(shape) {
    const size_t size = SizeOf(dtype), bytes = static_cast<size_t>(shape.count()) * size;
    begin_ = kGuard + offset * size;
    memory_.assign(begin_ + bytes + kGuard, kMark);
    aligned_ = (64 - reinterpret_cast<uintptr_t>(memory_.data()) % 64) % 64;
    memory_.resize(memory_.size() + aligned_, kMark);
    begin_ += aligned_;
    std::memset(memory_.data() + begin_, 0, bytes);
  }
  ~Buffer() {
    const size_t end = begin_ + static_cast<size_t>(shape_.count()) * SizeOf(dtype_);
    for (size_t i = 0; i < memory_.size(); ++i) {
      if (i == begin_) i = end;
      if (i < memory_.size() && memory_[i] != kMark) {
        ADD_FAILURE() << "byte " << static_cast<int64_t>(i - begin_) << " of a buffer of "
                      << end - begin_ << " was written";
        return;
      }
    }
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  Tensor tensor() { return Tensor(memory_.data() + begin_, dtype_, shape_); }
  operator Tensor() { return tensor(); }
  reference::Values values() { return reference::Read(tensor()); }

  void Set(int64_t i, float value) {
    if (dtype_ == DType::kF32) {
      tensor().As<float>()[i] = value;
    } else {
      tensor().As<bf16>()[i] = bf16(value);
    }
  }
  Buffer& Fill(const reference::Values& values) {
    for (size_t i = 0; i < values.size(); ++i) Set(i, static_cast<float>(values[i]));
    return *this;
  }
  // mean + deviation * standard normal numbers.
  Buffer& FillNormal(uint64_t seed, float deviation = 1, float mean = 0) {
    Random random(seed);
    for (int64_t i = 0; i < shape_.count(); ++i) Set(i, mean + deviation * random.Normal());
    return *this;
  }
  std::vector<unsigned char> bytes() const {
    const auto begin = memory_.begin() + static_cast<int64_t>(begin_);
    return {begin, begin + shape_.count() * static_cast<int64_t>(SizeOf(dtype_))};
  }

 private:
  static constexpr size_t kGuard = 192;
  static constexpr unsigned char kMark = 0xa5;
  DType dtype_;
  Shape shape_;
  std::vector<unsigned char> memory_;
  size_t begin_ = 0, aligned_ = 0;
};

// Each element within `tolerance` of the largest finite expected value (plus, for bf16, half a unit
// of its last place); infinities and NaN where they are expected and nowhere else.
inline void ExpectClose(const Tensor& got, const reference::Values& expected, double tolerance) {
  const reference::Values actual = reference::Read(got);
  ASSERT_EQ(actual.size(), expected.size());
  double most = 0;
  for (double value : expected) {
    if (std::isfinite(value)) most = std::max(most, std::abs(value));
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    const double want = expected[i];
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(actual[i])) << "element " << i << " is " << actual[i] << ", not NaN";
    } else if (std::isinf(want)) {
      ASSERT_EQ(actual[i], want) << "element " << i;
    } else {
      const double rounding = got.dtype() == DType::kBF16 ? std::abs(want) * 0x1.01p-8 : 0;
      ASSERT_LE(std::abs(actual[i] - want), tolerance * most + rounding + 1e-37)
          << "element " << i << " of " << expected.size() << " is " << actual[i] << ", expected "
          << want;
    }
  }
}

// Runs `run`, which returns bytes or anything else that == compares, on 1, 2 and 3 threads, and
// expects the same each time.
template <class F>
void ExpectSameOnAnyThreads(F&& run) {
  const int before = NumThreads();
  SetNumThreads(1);
  const auto one = run();
  for (int threads : {2, 3}) {
    SetNumThreads(threads);
    EXPECT_TRUE(run() == one) << threads << " threads give other bits than 1";
  }
  SetNumThreads(before);
}

inline std::vector<unsigned char> Bytes(std::initializer_list<const Buffer*> buffers) {
  std::vector<unsigned char> all;
  for (const Buffer* buffer : buffers) {
    const auto bytes = buffer->bytes();
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

}  // namespace denseformer::testing

#endif  // DENSEFORMER_KERNELS_TESTING_H_
