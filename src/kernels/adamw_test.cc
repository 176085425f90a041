#include "kernels/adamw.h"

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

std::span<float> SpanOf(Buffer& buffer) {
  return {buffer.tensor().f32(), static_cast<size_t>(buffer.tensor().count())};
}

struct State {
  Buffer weights, gradients, first, second;
  State(int64_t n, int64_t offset)
      : weights(DType::kF32, {n}, offset),
        gradients(DType::kF32, {n}, offset + 1),
        first(DType::kF32, {n}, 2),
        second(DType::kF32, {n}, 3) {
    weights.FillNormal(1);
    gradients.FillNormal(2, 0.1f);
  }
  void Update(const AdamWStep& step) {
    AdamWUpdate(step, SpanOf(weights), SpanOf(gradients), SpanOf(first), SpanOf(second));
  }
};

TEST(AdamW, FollowsReferenceOverSteps) {
  std::vector<int64_t> sizes = testing::kAwkwardSizes;
  sizes.insert(sizes.end(), {0, 9001});
  for (int64_t n : sizes) {
    SCOPED_TRACE(n);
    State state(n, n % 4);
    reference::AdamWState expected{state.weights.values(), {}, Values(n), Values(n)};
    for (int64_t t = 1; t <= 5; ++t) {
      state.gradients.FillNormal(10 + t, 0.1f);
      expected.gradients = state.gradients.values();
      const AdamWStep step{.rate = 1e-2f, .step = t, .gradient_scale = 0.5f};
      state.Update(step);
      reference::AdamWUpdate(step, expected);
      ExpectClose(state.weights, expected.weights, 5e-7);
      ExpectClose(state.first, expected.first_moment, 5e-7);
      ExpectClose(state.second, expected.second_moment, 5e-7);
      ExpectClose(state.gradients, expected.gradients, 0);
    }
  }
}

// The first step moves each weight by the rate whatever the size of its gradient; late steps have
// no correction left.
TEST(AdamW, BiasCorrection) {
  for (int64_t t : {int64_t{1}, int64_t{7}, int64_t{100000}}) {
    State state(100, 0);
    if (t > 1) state.first.FillNormal(3, 1e-3f);
    reference::AdamWState expected{state.weights.values(), state.gradients.values(),
                                   state.first.values(), state.second.values()};
    const AdamWStep step{.rate = 0.1f, .decay = 0, .step = t};
    state.Update(step);
    reference::AdamWUpdate(step, expected);
    ExpectClose(state.weights, expected.weights, 5e-7);
  }
}

TEST(AdamW, NonFiniteGradientsShow) {
  State state(40, 0);
  state.gradients.Set(3, kNaN);
  state.gradients.Set(35, kInfinity);
  reference::AdamWState expected{state.weights.values(), state.gradients.values(),
                                 state.first.values(), state.second.values()};
  state.Update({});
  reference::AdamWUpdate({}, expected);
  ExpectClose(state.weights, expected.weights, 5e-7);
  ExpectClose(state.first, expected.first_moment, 5e-7);
  ExpectClose(state.second, expected.second_moment, 5e-7);
}

TEST(AdamW, SameBitsOnAnyNumberOfThreads) {
  testing::ExpectSameOnAnyThreads([] {
    State state(30001, 0);
    state.Update({});
    return testing::Bytes({&state.weights, &state.gradients, &state.first, &state.second});
  });
}

TEST(SumOfSquares, AgreesWithReference) {
  std::vector<int64_t> sizes = testing::kAwkwardSizes;
  sizes.insert(sizes.end(), {0, 9001, 3000001});
  for (int64_t n : sizes) {
    Buffer x(DType::kF32, {n}, n % 4);
    x.FillNormal(1);
    double expected = 0;
    for (double value : x.values()) expected += value * value;
    EXPECT_NEAR(SumOfSquares(SpanOf(x)), expected, 1e-12 * expected) << n;
  }
}

TEST(SumOfSquares, LargeAndNonFiniteValues) {
  Buffer x(DType::kF32, {1000});
  x.FillNormal(1);
  x.Set(7, 3e38f);
  EXPECT_NEAR(SumOfSquares(SpanOf(x)) / 9e76, 1, 1e-6);  // past the range of floats
  x.Set(999, -kInfinity);
  EXPECT_EQ(SumOfSquares(SpanOf(x)), kInfinity);
  x.Set(500, kNaN);
  EXPECT_TRUE(std::isnan(SumOfSquares(SpanOf(x))));
}

TEST(SumOfSquares, SameBitsOnAnyNumberOfThreads) {
  Buffer x(DType::kF32, {1000003});
  x.FillNormal(1);
  testing::ExpectSameOnAnyThreads([&] { return SumOfSquares(SpanOf(x)); });
}

}  // namespace
}  // namespace denseformer
