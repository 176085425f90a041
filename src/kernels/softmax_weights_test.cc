#include "kernels/softmax_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/testing.h"

namespace denseformer {
namespace {

using testing::Buffer;
using testing::kAwkwardSizes;
using testing::kInfinity;
using testing::kNaN;

std::span<const float> Row(Buffer& buffer) {
  const Tensor t = buffer.tensor();
  return {t.f32(), static_cast<size_t>(t.count())};
}

TEST(SoftmaxWeights, AsInScalarArithmetic) {
  for (const int64_t size : kAwkwardSizes) {
    for (const int64_t offset : {0, 1, 3}) {
      for (const double temperature : {1.0, 0.7, 3.0, 1e-3, 1e-310}) {
        Buffer logits(DType::kF32, {size}, offset);
        logits.FillNormal(static_cast<uint64_t>(size), /*deviation=*/5);
        const std::span<const float> x = Row(logits);
        const float largest = LargestFinite(x);
        ASSERT_EQ(largest, *std::max_element(x.begin(), x.end()));
        std::vector<double> weights(x.size() + 1, -1);  // and a guard
        const double sum = SoftmaxWeights(x, largest, temperature, {weights.data(), x.size()});
        double total = 0;
        for (size_t i = 0; i < x.size(); ++i) {
          const double want = std::exp((static_cast<double>(x[i]) - largest) / temperature);
          ASSERT_NEAR(weights[i], want, 1e-15 * want + 1e-300) << size << " " << temperature;
          if (x[i] == largest) {
            ASSERT_EQ(weights[i], 1);
          }
          total += weights[i];
        }
        ASSERT_NEAR(sum, total, 1e-13 * total);
        ASSERT_EQ(weights.back(), -1);
      }
    }
  }
}

TEST(SoftmaxWeights, ValuesThatAreNotFiniteAreFound) {
  for (const int64_t size : kAwkwardSizes) {
    for (const float bad : {kNaN, kInfinity, -kInfinity}) {
      for (const int64_t at : {int64_t{0}, size / 2, size - 1}) {
        Buffer logits(DType::kF32, {size});
        logits.FillNormal(1).Set(at, bad);
        ASSERT_TRUE(std::isnan(LargestFinite(Row(logits)))) << size << " " << at << " " << bad;
      }
    }
  }
}

}  // namespace
}  // namespace denseformer
