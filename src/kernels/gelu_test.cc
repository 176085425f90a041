#include "kernels/gelu.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/reference.h"
#include "kernels/testing.h"

namespace denseformer {
namespace {

using reference::Values;
using testing::Buffer;
using testing::ExpectClose;
using testing::kInfinity;
using testing::kNaN;

TEST(Gelu, AgreesWithReference) {
  std::vector<int64_t> sizes = testing::kAwkwardSizes;
  sizes.insert(sizes.end(), {0, 9001});
  for (int64_t n : sizes) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(fmt::format("{} {}", n, DTypeName(dtype)));
      const int64_t offset = n % 3;
      Buffer x(dtype, {n}, offset), y(dtype, {n}, offset), dy(dtype, {n}, offset), dx(dtype, {n});
      x.FillNormal(1, 2);
      dy.FillNormal(2);
      GeluForward(x, y);
      const bool precise = dtype == DType::kF32;
      ExpectClose(y, reference::GeluForward(x.values()), precise ? 5e-7 : 3e-6);
      GeluBackward(x, dy, dx);
      ExpectClose(dx, reference::GeluBackward(x.values(), dy.values()), precise ? 5e-7 : 1e-5);
      GeluBackward(x, dy, dy);
      EXPECT_EQ(dy.bytes(), dx.bytes());
      GeluForward(x, x);
      EXPECT_EQ(x.bytes(), y.bytes());
    }
  }
}

// Over the range of floats where it is neither 0 nor x: the error relative to |x| (that is, of Phi)
// and of the derivative.
TEST(Gelu, AccurateOverTheWholeRange) {
  constexpr int64_t kCount = 200000;
  Buffer x(DType::kF32, {kCount}), y(DType::kF32, {kCount}), ones(DType::kF32, {kCount});
  Buffer dx(DType::kF32, {kCount});
  for (int64_t i = 0; i < kCount; ++i) {
    x.Set(i, (static_cast<float>(i) - kCount / 2) * 1.4e-4f + 1e-6f);
    ones.Set(i, 1);
  }
  GeluForward(x, y);
  GeluBackward(x, ones, dx);
  const Values xs = x.values(), ys = y.values(), slopes = dx.values();
  const Values expected = reference::GeluForward(xs);
  const Values slope = reference::GeluBackward(xs, Values(kCount, 1.0));
  double worst = 0, worst_tail = 0, worst_slope = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    worst = std::max(worst, std::abs(ys[i] - expected[i]) / std::abs(xs[i]));
    worst_slope = std::max(worst_slope, std::abs(slopes[i] - slope[i]));
    if (xs[i] < 0 && xs[i] > -5) {
      worst_tail = std::max(worst_tail, std::abs(ys[i] / expected[i] - 1));
    }
  }
  EXPECT_LT(worst, 1.3e-7);
  EXPECT_LT(worst_slope, 2.5e-7);
  EXPECT_LT(worst_tail, 2e-5);
}

TEST(Gelu, ExtremeAndNonFiniteValues) {
  const Values given = {0, 1e-40, -1e-40, 1e30, -1e30, -15, 3e38, -3e38, kNaN, kInfinity};
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    Buffer x(dtype, {10}), y(dtype, {10}), ones(dtype, {10}), dx(dtype, {10});
    x.Fill(given);
    ones.Fill(Values(10, 1.0));
    GeluForward(x, y);
    Values expected = x.values();
    for (int i : {4, 5, 7}) expected[i] = 0;
    for (int i : {1, 2}) expected[i] /= 2;
    for (int i = 0; i < 10; ++i) {
      const double got = y.values()[i];
      const bool same = got == expected[i] || (std::isnan(got) && std::isnan(expected[i]));
      // Far out the tail is cut, not 0; half of the least bf16 rounds to 0.
      EXPECT_TRUE(same || std::abs(got - expected[i]) < 1e-30) << i << ": " << got;
    }
    GeluBackward(x, ones, dx);
    EXPECT_NEAR(dx.values()[0], 0.5, 1e-7);
    EXPECT_EQ(dx.values()[3], 1);
    EXPECT_NEAR(dx.values()[4], 0, 1e-30);
    EXPECT_TRUE(std::isnan(dx.values()[8]));
  }
}

TEST(Gelu, SameBitsOnAnyNumberOfThreads) {
  testing::ExpectSameOnAnyThreads([] {
    Buffer x(DType::kBF16, {20001}), y(DType::kBF16, {20001}), dx(DType::kBF16, {20001});
    x.FillNormal(1);
    GeluForward(x, y);
    GeluBackward(x, y, dx);
    return testing::Bytes({&y, &dx});
  });
}

TEST(Gelu, ReferenceGradientIsTheDerivative) {
  const Values x = {-6, -3, -1, -0.3, 0, 0.2, 1, 2, 5}, ones(x.size(), 1.0);
  const Values gradient = reference::GeluBackward(x, ones);
  const Values by_x = reference::FiniteDifference(
      x, ones, 1e-5, [](const Values& v) { return reference::GeluForward(v); });
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(gradient[i], by_x[i], 1e-8);
}

}  // namespace
}  // namespace denseformer
