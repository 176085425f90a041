#include "kernels/rmsnorm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"

namespace denseformer {
namespace {

TEST(RmsNormTest, EqualsTheFormula) {
  for (const int64_t cols : {1, 5, 8, 17, 64, 129}) {
    constexpr int64_t kRows = 19;
    Random random(3);
    std::vector<float> x(kRows * cols), out(x.size()), rstd(kRows), dout(x.size()), dx(x.size(), 2);
    for (float& value : x) value = random.Normal();
    for (float& value : dout) value = random.Normal();
    const Shape shape = {kRows, cols};
    RmsNormForward(Tensor(x.data(), shape), Tensor(out.data(), shape),
                   Tensor(rstd.data(), {kRows}));
    RmsNormBackward(Tensor(dout.data(), shape), Tensor(out.data(), shape),
                    Tensor(rstd.data(), {kRows}), Tensor(dx.data(), shape));
    for (int64_t n = 0; n < kRows; ++n) {
      double squares = 0, along = 0;
      for (int64_t e = n * cols; e < (n + 1) * cols; ++e) squares += double{x[e]} * x[e];
      const double scale = 1 / std::sqrt(squares / static_cast<double>(cols) + 1e-6);
      EXPECT_NEAR(rstd[n], scale, 1e-6 * scale);
      for (int64_t e = n * cols; e < (n + 1) * cols; ++e) along += dout[e] * x[e] * scale;
      for (int64_t e = n * cols; e < (n + 1) * cols; ++e) {
        EXPECT_NEAR(out[e], x[e] * scale, 1e-5);
        const double expected =
            2 + scale * (dout[e] - x[e] * scale * along / static_cast<double>(cols));
        EXPECT_NEAR(dx[e], expected, 2e-5 * (1 + std::abs(scale)));
      }
    }
  }
}

TEST(RmsNormTest, RoundsToBf16) {
  std::vector<float> x = {3, -4, 0, 1}, rstd(1);
  std::vector<bf16> out(4);
  RmsNormForward(Tensor(x.data(), {1, 4}), Tensor(out.data(), {1, 4}), Tensor(rstd.data(), {1}));
  for (size_t e = 0; e < 4; ++e) {
    EXPECT_EQ(static_cast<float>(out[e]), static_cast<float>(bf16(x[e] * rstd[0])));
  }
}

}  // namespace
}  // namespace denseformer
