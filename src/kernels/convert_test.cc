#include "kernels/convert.h"

#include <gtest/gtest.h>

#include "kernels/reference.h"
#include "kernels/testing.h"

namespace denseformer {
namespace {

using testing::Buffer;

TEST(Convert, EveryPairOfTypes) {
  std::vector<int64_t> sizes = testing::kAwkwardSizes;
  sizes.insert(sizes.end(), {0, 20001});
  for (int64_t n : sizes) {
    for (DType from : {DType::kF32, DType::kBF16}) {
      for (DType to : {DType::kF32, DType::kBF16}) {
        Buffer x(from, {n}, 1), y(to, {n}, 3), expected(to, {n}, 3);
        x.FillNormal(1);
        if (n > 3) {
          x.Set(0, testing::kNaN);
          x.Set(1, -testing::kInfinity);
          x.Set(2, 3.4e38f);  // rounds to infinity in bf16
        }
        Convert(x, y);
        expected.Fill(x.values());
        EXPECT_EQ(y.bytes(), expected.bytes()) << n;
        Convert(x, x);
      }
    }
  }
}

TEST(Convert, PastTheCacheTheSameBits) {
  std::vector<int64_t> sizes = testing::kAwkwardSizes;
  sizes.insert(sizes.end(), {0, 32, 1023, 1024, 1056, 20001});
  for (int64_t n : sizes) {
    for (int64_t offset : {0, 1, 15, 32}) {  // of the result from a line
      Buffer x(DType::kF32, {n}, 1), y(DType::kBF16, {n}, offset),
          expected(DType::kBF16, {n}, offset);
      x.FillNormal(1);
      if (n > 2) x.Set(1, testing::kNaN);
      Convert(x, expected);
      ConvertPast(x.tensor().f32(), y.tensor().As<bf16>(), n);
      EXPECT_EQ(y.bytes(), expected.bytes()) << n << ", offset " << offset;
    }
  }
}

TEST(Convert, SameBitsOnAnyNumberOfThreads) {
  testing::ExpectSameOnAnyThreads([] {
    Buffer x(DType::kF32, {40001}), y(DType::kBF16, {40001});
    x.FillNormal(1);
    Convert(x, y);
    return y.bytes();
  });
}

}  // namespace
}  // namespace denseformer
