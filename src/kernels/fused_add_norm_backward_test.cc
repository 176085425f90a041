#include "kernels/fused_add_norm_backward.h"

#include <gtest/gtest.h>

#include "kernels/layernorm.h"
#include "kernels/residual.h"
#include "kernels/testing.h"

namespace denseformer {
namespace {

using testing::Buffer;

struct Case {
  int64_t rows, cols;
  DType delta, out;
  float dropout;
  bool gain, bias;
};
const Case kCases[] = {{0, 7, DType::kF32, DType::kF32, 0, false, false},
                       {1, 1, DType::kF32, DType::kF32, 0, true, true},
                       {5, 33, DType::kF32, DType::kF32, 0.2f, true, true},
                       {9, 129, DType::kBF16, DType::kF32, 0, false, true},
                       {70, 48, DType::kF32, DType::kBF16, 0.2f, false, false},
                       {20, 768, DType::kBF16, DType::kBF16, 0, false, false},
                       {3, 1000, DType::kBF16, DType::kBF16, 0.2f, true, false}};

Dropout DropoutOf(const Case& c) { return {.probability = c.dropout, .seed = 4, .stream = 2}; }

// The separate kernels are tested against the reference; the fused pass gives their bits.
TEST(FusedAddNorm, BackwardIsNormThenResidual) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(fmt::format("{} x {}", c.rows, c.cols));
    const Shape shape{c.rows, c.cols};
    Buffer x(DType::kF32, shape, 1), y(DType::kF32, shape), dout(c.out, shape, 1);
    Buffer weight(DType::kF32, {c.cols}), gain(DType::kF32, {1}), dresidual(DType::kF32, shape, 3);
    Buffer mean(DType::kF32, {c.rows}), rstd(DType::kF32, {c.rows}), unused(DType::kF32, shape);
    x.FillNormal(1);
    y.FillNormal(2);
    dout.FillNormal(3);
    weight.FillNormal(4);
    dresidual.FillNormal(5);
    gain.Set(0, 0.75f);
    LayerNormForward(y, weight, {}, unused, mean, rstd);
    const Tensor g = c.gain ? gain.tensor() : Tensor();

    Buffer dx(DType::kF32, shape), ddelta(c.delta, shape), dweight(DType::kF32, {c.cols});
    Buffer dbias(DType::kF32, {c.cols}), dgain(DType::kF32, {1});
    Buffer scratch(DType::kF32, {FusedAddNormScratch(c.cols)});
    Buffer scratch1(DType::kF32, {kResidualScratch});
    LayerNormBackward(dout, y, weight, mean, rstd,
                      {dresidual, dx, dweight, c.bias ? dbias.tensor() : Tensor(), scratch});
    ResidualBackward(dx, x, g, DropoutOf(c),
                     {dx, ddelta, c.gain ? dgain.tensor() : Tensor(), scratch1});

    Buffer ddelta2(c.delta, shape, 1), dweight2(DType::kF32, {c.cols});
    Buffer dbias2(DType::kF32, {c.cols}), dgain2(DType::kF32, {1});
    FusedAddNormBackward({dout, y, weight, mean, rstd, dresidual, dweight2,
                          c.bias ? dbias2.tensor() : Tensor(), x, g, DropoutOf(c), dresidual,
                          ddelta2, c.gain ? dgain2.tensor() : Tensor(), scratch});
    EXPECT_EQ(testing::Bytes({&dx, &ddelta, &dweight, &dbias}),
              testing::Bytes({&dresidual, &ddelta2, &dweight2, &dbias2}));
    EXPECT_NEAR(dgain.values()[0], dgain2.values()[0], 1e-6 * static_cast<double>(c.rows * c.cols));
  }
}

TEST(FusedAddNorm, SameBitsOnAnyNumberOfThreads) {
  testing::ExpectSameOnAnyThreads([] {
    const Shape shape{100, 50};
    Buffer x(DType::kF32, shape), y(DType::kF32, shape), out(DType::kBF16, shape);
    Buffer weight(DType::kF32, {50}), gain(DType::kF32, {1});
    Buffer mean(DType::kF32, {100}), rstd(DType::kF32, {100}), dx(DType::kF32, shape);
    Buffer dweight(DType::kF32, {50}), dgain(DType::kF32, {1}), ddelta(DType::kBF16, shape);
    Buffer scratch(DType::kF32, {FusedAddNormScratch(50)});
    x.FillNormal(1);
    y.FillNormal(2);
    weight.FillNormal(3);
    gain.Set(0, 1.5f);
    LayerNormForward(y, weight, {}, out, mean, rstd);
    FusedAddNormBackward(
        {out, y, weight, mean, rstd, {}, dweight, {}, x, gain, {}, dx, ddelta, dgain, scratch});
    return testing::Bytes({&dx, &dweight, &ddelta, &dgain});
  });
}

}  // namespace
}  // namespace denseformer
