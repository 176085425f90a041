#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/random.h"
#include "denseformer/dwa.h"

namespace denseformer {
namespace {

constexpr int64_t kRows = 5, kWidth = 37, kCount = kRows * kWidth;

std::vector<std::vector<float>> Normals(int count, uint64_t seed) {
  Random random(seed);
  std::vector<std::vector<float>> all(count, std::vector<float>(kCount));
  for (auto& values : all) {
    for (float& value : values) value = random.Normal();
  }
  return all;
}

template <class T>
std::vector<const T*> Pointers(const std::vector<std::vector<float>>& all) {
  std::vector<const T*> pointers;
  for (const auto& values : all) pointers.push_back(values.data());
  return pointers;
}

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    return error.what();
  }
  return "";
}

TEST(DwaPublicTest, ValuesAndGradientsFollowTheFormula) {
  const int depth = 7;
  DepthWeightedAverage dwa(DepthPattern::Parse("2x1", depth), 2 * kRows, kWidth);
  Random random(2);
  for (int i = 1; i <= depth; ++i) {
    EXPECT_EQ(dwa.weights(i).back(), 1.0f);
    for (float& weight : dwa.weights(i)) weight = random.Normal();
  }
  const auto x = Normals(depth + 1, 3), dy = Normals(depth + 1, 4);
  const auto history = Pointers<void>(x);
  dwa.Start(kRows);
  for (int i = 1; i <= depth; ++i) {
    std::vector<float> y(kCount);
    dwa.Forward(i, x[i].data(), history.data(), y.data());
    for (int64_t e = 0; e < kCount; ++e) {
      double sum = 0;
      for (size_t k = 0; k < dwa.weights(i).size(); ++k) {
        sum += double{dwa.weights(i)[k]} * x[dwa.pattern().sources(i)[k]][e];
      }
      ASSERT_NEAR(y[e], sum, 1e-5);
    }
  }
  for (int j = depth; j >= 0; --j) {
    std::vector<float> dx(kCount, 0.25f);
    dwa.Backward(j, history.data(), Pointers<float>(dy).data(), dx.data());
    for (int64_t e = 0; e < kCount; ++e) {
      double sum = dwa.has_module(j) ? 0 : 0.25;
      for (const auto& reader : dwa.pattern().readers(j)) {
        sum += double{dwa.weights(reader.depth)[reader.index]} * dy[reader.depth][e];
      }
      ASSERT_NEAR(dx[e], sum, 1e-5);
    }
  }
  double dot = 0;
  for (int64_t e = 0; e < kCount; ++e) dot += double{x[3][e]} * dy[5][e];
  EXPECT_NEAR(dwa.weight_gradients(5)[1], dot, 1e-4);  // sources of module 5: 1, 3, 5
}

TEST(DwaPublicTest, StoresTheHistoryInBfloat16) {
  DepthWeightedAverage dwa(DepthPattern::Parse("1x1", 1), kRows, kWidth, HistoryType::kBfloat16);
  std::vector<float> x(kCount, 1.00390625f), y(kCount);  // between two bf16 numbers: to even
  std::vector<uint16_t> stored(kCount);
  dwa.Store(x.data(), kCount, stored.data());
  EXPECT_EQ(stored[kCount - 1], 0x3f80);
  dwa.weights(1)[0] = 2;
  const void* history[] = {stored.data()};
  dwa.Start(kRows);
  dwa.Forward(1, x.data(), history, y.data());
  EXPECT_EQ(y, std::vector<float>(kCount, 3.00390625f));
}

TEST(DwaPublicTest, SaysWhatIsWrongWithACall) {
  const DepthPattern pattern = DepthPattern::Parse("1x2", 4);
  const std::string start = "depth-weighted average: ";
  EXPECT_EQ(MessageOf([&] { DepthWeightedAverage(pattern, 0, 3); }),
            start + "0 rows of 3 elements, expected at least 1 x 1");
  DepthWeightedAverage dwa(pattern, kRows, kWidth);
  const auto x = Normals(5, 1);
  std::vector<const void*> history = Pointers<void>(x);
  const std::vector<const float*> dy = Pointers<float>(x);
  std::vector<float> y(kCount);
  auto forward = [&](int i) { dwa.Forward(i, x[0].data(), history.data(), y.data()); };
  EXPECT_EQ(MessageOf([&] { forward(2); }), start + "Forward before Start");
  EXPECT_EQ(MessageOf([&] { dwa.Start(6); }), start + "6 rows, expected 1 to 5");
  dwa.Start(kRows);
  EXPECT_EQ(MessageOf([&] { forward(5); }), start + "depth 5, expected 0 to 4");
  EXPECT_EQ(MessageOf([&] { forward(3); }), start + "pattern 1x2 has no module after block 3");
  EXPECT_EQ(MessageOf([&] { forward(4); }), start + "Forward of module 4 before that of module 2");
  forward(2);
  EXPECT_EQ(MessageOf([&] { forward(2); }), start + "Forward of module 2 after that of module 2");
  EXPECT_EQ(MessageOf([&] { dwa.Backward(3, history.data(), dy.data(), y.data()); }),
            start + "Backward of depth 3, expected 4");
  history[1] = nullptr;
  EXPECT_EQ(MessageOf([&] { forward(4); }), start + "history of depth 1 is null");
  EXPECT_EQ(MessageOf([&] { dwa.Forward(4, nullptr, history.data(), y.data()); }),
            start + "newest of depth 4 is null");
}

}  // namespace
}  // namespace denseformer
