#include "model/gradient_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "model/testing.h"

namespace denseformer {
namespace {

double Squares(std::span<const float> values) {
  double sum = 0;
  for (float value : values) sum += double{value} * value;
  return sum;
}

Model TrainableModel(DType compute) {
  Model model(SmallConfig("1x1", true, true), compute, ModelUse::kTraining);
  model.Initialize(1);
  return model;
}

TEST(GradientNormTest, IsThatOfAllGradientsAfterEachPass) {
  for (DType compute : {DType::kF32, DType::kBF16}) {
    const Model model = TrainableModel(compute);
    const RandomBatch batch(model.config(), 2, 9, 3);
    Activations activations(model, 2, 9, ModelUse::kTraining);
    double before = 0;
    for (Gradients gradients : {Gradients::kReplace, Gradients::kAdd}) {
      ForwardBackward(model, batch.batch(), DropoutOptions(), 0.5f, gradients, activations);
      const double squares = SquaredGradientNorm(model, activations.matrix_squares);
      EXPECT_NEAR(squares, Squares(model.gradients()), 1e-6 * squares);
      EXPECT_GT(squares, 2 * before);
      before = squares;
    }
  }
}

// The GEMMs square in fp32, whose range ends before that of the norm.
TEST(GradientNormTest, IsReadAgainWhereTheProductsOverflowed) {
  const Model model = TrainableModel(DType::kF32);
  for (float& gradient : model.gradients()) gradient = 0;
  model.gradient_tensors().blocks[1].fc_weight.f32()[3] = 1e30f;
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_NEAR(SquaredGradientNorm(model, infinity) / 1e60, 1, 1e-6);
  model.gradient_tensors().blocks[1].fc_weight.f32()[3] = std::nanf("");
  EXPECT_TRUE(std::isnan(SquaredGradientNorm(model, std::nan(""))));
}

}  // namespace
}  // namespace denseformer
