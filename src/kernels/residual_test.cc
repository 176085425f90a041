#include "kernels/residual.h"

#include <gtest/gtest.h>

#include "kernels/reference.h"
#include "kernels/testing.h"

namespace denseformer {
namespace {

using reference::Values;
using testing::Buffer;
using testing::ExpectClose;
using testing::kInfinity;
using testing::kNaN;

const Dropout kOff{};
const Dropout kOn{.probability = 0.3f, .seed = 5, .stream = 77};

TEST(Dropout, FillScalesIsScale) {
  for (uint64_t start :
       {uint64_t{0}, uint64_t{1}, uint64_t{6}, (uint64_t{1} << 34) - 5, (uint64_t{1} << 34) + 3}) {
    for (int64_t n : {0, 1, 3, 4, 5, 64, 1001}) {
      Buffer scales(DType::kF32, {n});
      kOn.FillScales(start, n, scales.tensor().f32());
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(scales.tensor().f32()[i], kOn.Scale(start + i)) << start << " + " << i;
      }
    }
  }
}

TEST(Residual, ForwardAgreesWithReference) {
  std::vector<int64_t> sizes = testing::kAwkwardSizes;
  sizes.push_back(0);
  for (int64_t cols : sizes) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      for (const Dropout& dropout : {kOff, kOn}) {
        for (bool with_gain : {false, true}) {
          Buffer x(DType::kF32, {9, cols}, cols % 5), delta(dtype, {9, cols}, 1);
          Buffer y(DType::kF32, {9, cols}, 3), gain(DType::kF32, {1});
          x.FillNormal(1);
          delta.FillNormal(2);
          gain.Set(0, 1.25f);
          const Tensor g = with_gain ? gain.tensor() : Tensor();
          ResidualForward(x, delta, g, dropout, y);
          ExpectClose(
              y,
              reference::ResidualForward(x.values(), delta.values(), with_gain ? 1.25 : 1, dropout),
              2e-7);
          ResidualForward(x, delta, g, dropout, x);
          EXPECT_EQ(x.bytes(), y.bytes());
        }
      }
    }
  }
}

TEST(Residual, NonFiniteValuesPass) {
  Buffer x(DType::kF32, {1, 40}), delta(DType::kBF16, {1, 40}), y(DType::kF32, {1, 40});
  x.FillNormal(1);
  delta.FillNormal(2);
  x.Set(0, kNaN);
  delta.Set(1, kNaN);
  x.Set(2, kInfinity);
  delta.Set(2, -kInfinity);
  delta.Set(39, kInfinity);
  ResidualForward(x, delta, {}, kOff, y);
  ExpectClose(y, reference::ResidualForward(x.values(), delta.values(), 1, kOff), 2e-7);
}

TEST(Residual, BackwardAgreesWithReference) {
  for (int64_t cols : {1, 3, 33, 768, 1000}) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      for (const Dropout& dropout : {kOff, kOn}) {
        SCOPED_TRACE(fmt::format("{} {} {}", cols, DTypeName(dtype), dropout.probability));
        const Shape shape{17, cols};
        Buffer x(DType::kF32, shape, 1), dy(DType::kF32, shape, 3), dx(DType::kF32, shape);
        Buffer ddelta(dtype, shape, 1), gain(DType::kF32, {1}), dgain(DType::kF32, {1});
        Buffer scratch(DType::kF32, {kResidualScratch});
        x.FillNormal(1);
        dy.FillNormal(2);
        gain.Set(0, 0.75f);
        dgain.Set(0, 10);
        Values expected_dx = dy.values(), expected_ddelta = dy.values(), product = dy.values();
        double expected_dgain = 10, size = 0;
        const Values xs = x.values();
        for (size_t i = 0; i < xs.size(); ++i) {
          expected_dx[i] *= 0.75;
          if (dropout.enabled()) expected_ddelta[i] *= dropout.Scale(i);
          expected_dgain += product[i] * xs[i];
          size += std::abs(product[i] * xs[i]);
        }
        ResidualBackward(dy, x, gain, dropout, {dx, ddelta, dgain, scratch});
        ExpectClose(dx, expected_dx, 2e-7);
        ExpectClose(ddelta, expected_ddelta, 2e-7);
        EXPECT_NEAR(dgain.values()[0], expected_dgain, 3e-7 * (size + 10));

        // In place of dy, with and without a gain.
        Buffer other(dtype, shape);
        const auto before = dy.bytes();
        ResidualBackward(dy, x, {}, dropout, {dy, other, {}, {}});
        EXPECT_EQ(dy.bytes(), before);
        EXPECT_EQ(other.bytes(), ddelta.bytes());
        ResidualBackward(dy, x, gain, dropout, {dy, other, dgain, scratch});
        EXPECT_EQ(dy.bytes(), dx.bytes());
        EXPECT_EQ(other.bytes(), ddelta.bytes());
      }
    }
  }
}

TEST(Residual, SameBitsOnAnyNumberOfThreads) {
  testing::ExpectSameOnAnyThreads([] {
    const Shape shape{33, 777};
    Buffer x(DType::kF32, shape), delta(DType::kBF16, shape), y(DType::kF32, shape);
    Buffer dx(DType::kF32, shape), ddelta(DType::kBF16, shape), gain(DType::kF32, {1});
    Buffer dgain(DType::kF32, {1}), scratch(DType::kF32, {kResidualScratch});
    x.FillNormal(1);
    delta.FillNormal(2);
    gain.Set(0, 1.5f);
    ResidualForward(x, delta, gain, kOn, y);
    ResidualBackward(y, x, gain, kOn, {dx, ddelta, dgain, scratch});
    return testing::Bytes({&y, &dx, &ddelta, &dgain});
  });
}

}  // namespace
}  // namespace denseformer
