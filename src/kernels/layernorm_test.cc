#include "kernels/layernorm.h"

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

struct Case {
  int64_t rows, cols, offset;
  DType dtype;
  bool bias;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (int64_t cols : testing::kAwkwardSizes) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      cases.push_back({5, cols, cols % 4, dtype, cols % 2 == 0});
    }
  }
  for (int64_t rows : {0, 1, 8, 9, 17, 700}) cases.push_back({rows, 33, 1, DType::kF32, true});
  return cases;
}

TEST(LayerNorm, ForwardAgreesWithReference) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(fmt::format("{} x {} {}", c.rows, c.cols, DTypeName(c.dtype)));
    // A mean far from 0: the variance must not come from a difference of large numbers.
    Buffer x(DType::kF32, {c.rows, c.cols}, c.offset), weight(DType::kF32, {c.cols}, c.offset);
    Buffer bias(DType::kF32, {c.cols}), out(c.dtype, {c.rows, c.cols}, c.offset);
    Buffer mean(DType::kF32, {c.rows}), rstd(DType::kF32, {c.rows});
    x.FillNormal(1, 0.5f, 3);
    weight.FillNormal(2, 0.3f, 1);
    bias.FillNormal(3);
    const Tensor given_bias = c.bias ? bias.tensor() : Tensor();
    LayerNormForward(x, weight, given_bias, out, mean, rstd);
    const auto expected =
        reference::LayerNormForward(x.values(), weight.values(), c.bias ? bias.values() : Values{});
    ExpectClose(out, expected.out, c.cols < 4 ? 2e-5 : 2e-6);
    ExpectClose(mean, expected.mean, 3e-7);
    ExpectClose(rstd, expected.rstd, c.cols < 4 ? 1e-5 : 1e-6);

    Buffer again(c.dtype, {c.rows, c.cols}, c.offset);
    LayerNormForward(x, weight, given_bias, again, {}, {});
    EXPECT_EQ(again.bytes(), out.bytes());
  }
}

TEST(LayerNorm, NonFiniteValuesStayInTheirRow) {
  Buffer x(DType::kF32, {4, 35}), weight(DType::kF32, {35}), out(DType::kF32, {4, 35});
  x.FillNormal(1);
  weight.FillNormal(2);
  x.Set(35 + 34, kNaN);
  x.Set(2 * 35 + 3, kInfinity);
  LayerNormForward(x, weight, {}, out, {}, {});
  ExpectClose(out, reference::LayerNormForward(x.values(), weight.values(), {}).out, 1e-6);
}

TEST(LayerNorm, BackwardAgreesWithReference) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(fmt::format("{} x {} {}", c.rows, c.cols, DTypeName(c.dtype)));
    Buffer x(DType::kF32, {c.rows, c.cols}, c.offset), weight(DType::kF32, {c.cols}, c.offset);
    Buffer dout(c.dtype, {c.rows, c.cols}, c.offset), out(DType::kF32, {c.rows, c.cols});
    Buffer mean(DType::kF32, {c.rows}), rstd(DType::kF32, {c.rows});
    Buffer dx(DType::kF32, {c.rows, c.cols}, c.offset), dresidual(DType::kF32, {c.rows, c.cols});
    Buffer dweight(DType::kF32, {c.cols}), dbias(DType::kF32, {c.cols});
    Buffer scratch(DType::kF32, {LayerNormScratch(c.cols)});
    x.FillNormal(1, 0.8f, 0.2f);
    weight.FillNormal(2, 0.3f, 1);
    dout.FillNormal(3);
    dresidual.FillNormal(4);
    dweight.FillNormal(5);
    dbias.FillNormal(6);
    LayerNormForward(x, weight, {}, out, mean, rstd);
    auto expected = reference::LayerNormBackward(dout.values(), x.values(), weight.values());
    const bool with_residual = c.cols % 3 != 0;
    for (int64_t i = 0; i < c.cols; ++i) {
      expected.dweight[i] += dweight.values()[i];
      expected.dbias[i] += dbias.values()[i];
    }
    const Values residual = dresidual.values();
    for (size_t i = 0; i < residual.size() && with_residual; ++i) expected.dx[i] += residual[i];
    LayerNormBackward(dout, x, weight, mean, rstd,
                      {with_residual ? dresidual.tensor() : Tensor(), dx, dweight,
                       c.bias ? dbias.tensor() : Tensor(), scratch});
    ExpectClose(dx, expected.dx, c.cols < 4 ? 2e-4 : 3e-6);
    ExpectClose(dweight, expected.dweight, c.cols < 4 ? 1e-5 : 1e-6);
    if (c.bias) ExpectClose(dbias, expected.dbias, 1e-6);
  }
}

TEST(LayerNorm, BackwardInPlaceOfResidualGradientAndOfInput) {
  constexpr int64_t kRows = 6, kCols = 37;
  Buffer x(DType::kF32, {kRows, kCols}), weight(DType::kF32, {kCols});
  Buffer dout(DType::kF32, {kRows, kCols}), out(DType::kF32, {kRows, kCols});
  Buffer mean(DType::kF32, {kRows}), rstd(DType::kF32, {kRows});
  Buffer dx(DType::kF32, {kRows, kCols}), dresidual(DType::kF32, {kRows, kCols});
  Buffer dweight(DType::kF32, {kCols}), scratch(DType::kF32, {LayerNormScratch(kCols)});
  x.FillNormal(1);
  weight.FillNormal(2);
  dout.FillNormal(3);
  dresidual.FillNormal(4);
  LayerNormForward(x, weight, {}, out, mean, rstd);
  LayerNormBackward(dout, x, weight, mean, rstd, {dresidual, dx, dweight, {}, scratch});
  LayerNormBackward(dout, x, weight, mean, rstd, {dresidual, dresidual, dweight, {}, scratch});
  EXPECT_EQ(dresidual.bytes(), dx.bytes());
  LayerNormBackward(dout, x, weight, mean, rstd, {{}, dx, dweight, {}, scratch});
  LayerNormBackward(dout, x, weight, mean, rstd, {{}, x, dweight, {}, scratch});
  EXPECT_EQ(x.bytes(), dx.bytes());
}

TEST(LayerNorm, SameBitsOnAnyNumberOfThreads) {
  for (int64_t rows : {7, 64, 333}) {
    testing::ExpectSameOnAnyThreads([&] {
      constexpr int64_t kCols = 70;
      Buffer x(DType::kF32, {rows, kCols}), weight(DType::kF32, {kCols});
      Buffer dout(DType::kBF16, {rows, kCols}), out(DType::kBF16, {rows, kCols});
      Buffer mean(DType::kF32, {rows}), rstd(DType::kF32, {rows}), dx(DType::kF32, {rows, kCols});
      Buffer dweight(DType::kF32, {kCols}), dbias(DType::kF32, {kCols});
      Buffer scratch(DType::kF32, {LayerNormScratch(kCols)});
      x.FillNormal(1);
      weight.FillNormal(2);
      dout.FillNormal(3);
      LayerNormForward(x, weight, {}, out, mean, rstd);
      LayerNormBackward(dout, x, weight, mean, rstd, {{}, dx, dweight, dbias, scratch});
      return testing::Bytes({&out, &mean, &rstd, &dx, &dweight, &dbias});
    });
  }
}

TEST(LayerNorm, ReferenceGradientIsTheDerivative) {
  constexpr int64_t kRows = 3, kCols = 7;
  Buffer x(DType::kF32, {kRows, kCols}), weight(DType::kF32, {kCols}), dout(DType::kF32, {21});
  const Values xs = x.FillNormal(1).values(), w = weight.FillNormal(2).values();
  const Values dy = dout.FillNormal(3).values();
  const auto gradient = reference::LayerNormBackward(dy, xs, w);
  const Values by_x = reference::FiniteDifference(
      xs, dy, 1e-5, [&](const Values& v) { return reference::LayerNormForward(v, w, {}).out; });
  const Values by_weight = reference::FiniteDifference(
      w, dy, 1e-5, [&](const Values& v) { return reference::LayerNormForward(xs, v, {}).out; });
  for (size_t i = 0; i < xs.size(); ++i) EXPECT_NEAR(gradient.dx[i], by_x[i], 1e-7);
  for (size_t i = 0; i < w.size(); ++i) EXPECT_NEAR(gradient.dweight[i], by_weight[i], 1e-7);
}

}  // namespace
}  // namespace denseformer
