#include "kernels/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/testing.h"
#include "kernels/reference.h"
#include "kernels/testing.h"

namespace denseformer {
namespace {

using reference::Values;
using testing::Buffer;
using testing::ExpectClose;
using testing::kInfinity;
using testing::kNaN;

constexpr float kScale = 0.125f;

std::vector<int32_t> Targets(int64_t rows, int64_t cols) {
  Random random(3);
  std::vector<int32_t> targets(rows);
  for (int32_t& target : targets) target = static_cast<int32_t>(random.Below(cols));
  return targets;
}

struct Case {
  int64_t rows, cols;
  float deviation, mean;
};

std::vector<Case> Cases() {
  std::vector<Case> cases = {{0, 10, 1, 0}, {1, 50304, 2, 0}, {3, 50304, 20, 0}, {40, 65, 1, 0}};
  for (int64_t cols : testing::kAwkwardSizes) cases.push_back({4, cols, 2, 0});
  cases.push_back({4, 2049, 1, 500});    // far from 0
  cases.push_back({4, 5000, 300, 0});    // certain
  cases.push_back({4, 4097, 1e-3f, 0});  // almost uniform
  return cases;
}

TEST(CrossEntropy, AgreesWithReference) {
  for (const Case& c : Cases()) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      for (DType gradient : {DType::kF32, DType::kBF16}) {
        SCOPED_TRACE(fmt::format("{} x {} {} {}", c.rows, c.cols, DTypeName(dtype), c.deviation));
        Buffer logits(dtype, {c.rows, c.cols}, 1), dlogits(gradient, {c.rows, c.cols}, 3);
        Buffer losses(DType::kF32, {c.rows}), again(DType::kF32, {c.rows});
        logits.FillNormal(1, c.deviation, c.mean);
        auto targets = Targets(c.rows, c.cols);
        if (c.rows > 2) targets[1] = kIgnoreTarget;
        const std::span<float> losses_out(losses.tensor().f32(), c.rows);
        const std::span<float> again_out(again.tensor().f32(), c.rows);
        CrossEntropyForwardBackward(logits, targets, kScale, losses_out, dlogits);
        const auto expected =
            reference::CrossEntropyForwardBackward(logits.values(), targets, kScale);
        ExpectClose(losses, expected.losses, 3e-7);
        ExpectClose(dlogits, expected.dlogits, gradient == DType::kF32 ? 5e-7 : 4e-6);
        CrossEntropyForward(logits, targets, again_out, {});
        EXPECT_EQ(again.bytes(), losses.bytes());
        if (dtype == DType::kF32 && gradient == DType::kF32) {
          CrossEntropyForwardBackward(logits, targets, kScale, losses_out, logits);
          EXPECT_EQ(logits.bytes(), dlogits.bytes());
        }
      }
    }
  }
}

// A confident row: its loss is near the spacing of floats at its logits.
TEST(CrossEntropy, SmallLossOfLargeLogits) {
  Buffer logits(DType::kF32, {1, 100}), loss(DType::kF32, {1}), dlogits(DType::kF32, {1, 100});
  for (int i = 0; i < 100; ++i) logits.Set(i, 2000);
  logits.Set(42, 2012);
  const std::vector<int32_t> targets = {42};
  CrossEntropyForwardBackward(logits, targets, 1, {loss.tensor().f32(), 1}, dlogits);
  const auto expected = reference::CrossEntropyForwardBackward(logits.values(), targets, 1);
  EXPECT_NEAR(loss.values()[0], expected.losses[0], 1e-6);
  EXPECT_NEAR(dlogits.values()[42], expected.dlogits[42], 1e-6);
}

TEST(CrossEntropy, CorrectMeansTheFirstLargestIsTheTarget) {
  Buffer logits(DType::kF32, {6, 40}), losses(DType::kF32, {6});
  logits.FillNormal(1);
  for (int row : {0, 1, 2, 3, 4}) logits.Set(row * 40 + 20, 9);
  logits.Set(2 * 40 + 10, 9);  // an equal before
  logits.Set(3 * 40 + 30, 9);  // an equal behind
  const std::vector<int32_t> targets = {20, 21, 20, 20, kIgnoreTarget, 5};
  logits.Set(5 * 40 + 7, kNaN);
  std::vector<uint8_t> correct(6, 7);
  CrossEntropyForward(logits, targets, {losses.tensor().f32(), 6}, correct);
  EXPECT_EQ(correct, (std::vector<uint8_t>{1, 0, 0, 1, 0, 0}));
  EXPECT_EQ(losses.values()[4], 0);
  EXPECT_TRUE(std::isnan(losses.values()[5]));
}

TEST(CrossEntropy, NonFiniteLogits) {
  for (int64_t cols : {4, 3000}) {
    Buffer logits(DType::kF32, {5, cols}), losses(DType::kF32, {5}),
        dlogits(DType::kF32, {5, cols});
    logits.FillNormal(1);
    logits.Set(0 * cols + cols - 1, kNaN);
    logits.Set(1 * cols + 2, kInfinity);
    logits.Set(2 * cols + 1, -kInfinity);  // a class that cannot be
    logits.Set(3 * cols + 0, -kInfinity);  // nor can the target
    for (int64_t i = 0; i < cols; ++i) logits.Set(4 * cols + i, -kInfinity);
    const std::vector<int32_t> targets(5, 0);
    CrossEntropyForwardBackward(logits, targets, kScale, {losses.tensor().f32(), 5}, dlogits);
    EXPECT_TRUE(std::isnan(losses.values()[0]));
    EXPECT_TRUE(std::isnan(losses.values()[1]));
    EXPECT_EQ(losses.values()[3], kInfinity);
    EXPECT_TRUE(std::isnan(losses.values()[4]));
    for (int64_t row : {2, 3}) {
      const Values x = logits.values(), dx = dlogits.values();
      const Values one(x.begin() + row * cols, x.begin() + (row + 1) * cols);
      const std::vector<int32_t> target = {0};
      const auto expected = reference::CrossEntropyForwardBackward(one, target, kScale);
      for (int64_t i = 0; i < cols; ++i) {
        ASSERT_NEAR(dx[row * cols + i], expected.dlogits[i], 1e-7) << row << " " << i;
      }
    }
    for (int64_t row : {0, 1, 4}) EXPECT_TRUE(std::isnan(dlogits.values()[row * cols]));
  }
}

TEST(CrossEntropy, SameBitsOnAnyNumberOfThreads) {
  testing::ExpectSameOnAnyThreads([] {
    Buffer logits(DType::kF32, {11, 3001}), losses(DType::kF32, {11});
    Buffer dlogits(DType::kBF16, {11, 3001});
    logits.FillNormal(1);
    CrossEntropyForwardBackward(logits, Targets(11, 3001), kScale, {losses.tensor().f32(), 11},
                                dlogits);
    return testing::Bytes({&losses, &dlogits});
  });
}

TEST(CrossEntropy, ReferenceGradientIsTheDerivative) {
  Buffer logits(DType::kF32, {3, 7});
  const Values x = logits.FillNormal(1).values(), ones(3, kScale);
  const std::vector<int32_t> targets = {2, kIgnoreTarget, 6};
  const Values by_x = reference::FiniteDifference(x, ones, 1e-5, [&](const Values& v) {
    return reference::CrossEntropyForwardBackward(v, targets, 1).losses;
  });
  const auto gradient = reference::CrossEntropyForwardBackward(x, targets, kScale);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(gradient.dlogits[i], by_x[i], 1e-9);
}

TEST(CrossEntropy, RefusesTargetsOutsideTheRow) {
  Buffer logits(DType::kF32, {1, 4}), loss(DType::kF32, {1});
  for (int32_t target : {-2, 4}) {
    const std::vector<int32_t> targets = {target};
    EXPECT_NE(ErrorOf([&] {
                CrossEntropyForward(logits, targets, {loss.tensor().f32(), 1}, {});
              }).find("target"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace denseformer
