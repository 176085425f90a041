// Decay groups, delayed DWA weights, clipping's norm; AdamW against its formula in fp64.
#include "train/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

namespace denseformer {
namespace {

TrainOptions Options() {
  TrainOptions options = PresetOptions("test");
  options.model.dwa = "2x1";
  options.model.gains = true;
  options.model.bias = true;
  return options;
}

// A model whose gradients are a function of the place.
Model TestModel(const TrainOptions& options) {
  Model model(options.model, DType::kF32, ModelUse::kTraining);
  model.Initialize(1);
  return model;
}

void FillGradients(Model& model, float scale) {
  for (const Parameter& p : model.table().all()) {
    for (int64_t i = 0; i < p.count(); ++i) {
      model.gradients()[p.offset + i] = scale * std::sin(static_cast<float>(p.offset + i));
    }
  }
}

std::vector<float> Copy(std::span<const float> values) { return {values.begin(), values.end()}; }

bool Decays(const TrainOptions& options, const Parameter& p) {
  if (p.name.find("alphas") != std::string::npos) return options.decay_dwa;
  if (p.name.find("gain_") != std::string::npos) return options.decay_gains;
  if (p.name.ends_with(".bias") || p.name.find("ln_") != std::string::npos) return false;
  return p.name != "transformer.wte.weight";
}

TEST(OptimizerTest, EveryParameterMovesByTheFormula) {
  for (const bool exempt : {false, true}) {
    TrainOptions options = Options();
    options.decay_dwa = options.decay_gains = !exempt;
    Model model = TestModel(options);
    Optimizer optimizer(model, options);
    const std::vector<float> before = Copy(model.weights());
    std::vector<double> w(before.begin(), before.end()), m(w.size()), v(w.size());
    const double rates[] = {1e-3, 2e-3, 5e-4};
    for (int step = 0; step < 3; ++step) {
      FillGradients(model, 0.1f + static_cast<float>(step));
      const std::vector<float> g = Copy(model.gradients());
      optimizer.Update(step, rates[step], 0.5);
      for (const Parameter& p : model.table().all()) {
        const double decay = Decays(options, p) ? options.weight_decay : 0;
        for (int64_t i = p.offset; i < p.offset + p.count(); ++i) {
          const double gradient = 0.5 * g[i];
          m[i] = 0.9 * m[i] + 0.1 * gradient;
          v[i] = 0.95 * v[i] + 0.05 * gradient * gradient;
          const double m_hat = m[i] / (1 - std::pow(0.9, step + 1));
          const double v_hat = v[i] / (1 - std::pow(0.95, step + 1));
          w[i] = w[i] * (1 - rates[step] * decay) - rates[step] * m_hat / (std::sqrt(v_hat) + 1e-8);
          ASSERT_NEAR(model.weights()[i], w[i], 1e-6) << p.name;
        }
      }
    }
    EXPECT_EQ(optimizer.updates(), 3);
    // Nothing grows between the tensors.
    std::vector<bool> inside(w.size());
    for (const Parameter& p : model.table().all()) {
      std::fill_n(inside.begin() + p.offset, p.count(), true);
    }
    for (size_t i = 0; i < w.size(); ++i) {
      ASSERT_TRUE(inside[i] || model.weights()[i] == 0);
    }
  }
}

// --mixer-lr is a factor for all weights of averages, --mixer-weight-decay for those of mixers that
// are not static.
TEST(OptimizerTest, RateAndDecayOfMixers) {
  for (const char* mixer : {"static", "dynamic", "attention", "attnres"}) {
    TrainOptions options = Options();
    options.model.mixer = mixer;
    options.model.streams = "rv";
    Model one = TestModel(options);
    options.mixer_lr = 0.25;
    options.mixer_weight_decay = 0.5;
    Model other = TestModel(options);
    // Away from 0, where decay shows nothing.
    for (Model* model : {&one, &other}) {
      for (float& weight : model->weights()) weight += 0.5f;
    }
    const std::vector<float> before = Copy(one.weights());
    Optimizer first(one, Options());
    Optimizer second(other, options);
    FillGradients(one, 1);
    FillGradients(other, 1);
    first.Update(0, 1e-2, 1);
    second.Update(0, 1e-2, 1);
    for (const Parameter& p : one.table().all()) {
      const bool mixes = p.name.starts_with("dwa_modules.");
      for (int64_t i = p.offset; i < p.offset + p.count(); ++i) {
        const double w = before[i];
        double moved = one.weights()[i] - w;
        if (mixes && std::string(mixer) != "static") {
          moved = 0.25 * moved - 1e-2 * 0.25 * 0.5 * w;
        } else if (mixes) {
          moved *= 0.25;  // decays as before, at its own rate
        }
        ASSERT_NEAR(other.weights()[i] - w, moved, 1e-6) << mixer << " " << p.name;
      }
    }
  }
}

TEST(OptimizerTest, DelayedDwaWeightsBeginAsIfNew) {
  TrainOptions options = Options();
  options.dwa_start = 2;
  Model model = TestModel(options);
  Optimizer optimizer(model, options);
  const Parameter& alphas = *model.table().Find("dwa_modules.alphas.3.weight");
  const auto weights = [&] { return Copy(model.weights().subspan(alphas.offset, 3)); };
  const std::vector<float> identity = weights();
  EXPECT_EQ(identity, (std::vector<float>{0, 0, 1}));

  for (int step = 0; step < 2; ++step) {
    FillGradients(model, 1);
    double expected = 0, matrices = 0;
    for (const Parameter& p : model.table().all()) {
      if (p.group == ParameterGroup::kDwa) continue;
      for (int64_t i = 0; i < p.count(); ++i) {
        const double square = std::pow(double{model.gradients()[p.offset + i]}, 2);
        expected += square;
        if (p.matrix() && p.block > 0) matrices += square;
      }
    }
    EXPECT_NEAR(std::sqrt(optimizer.SquaredGradientNorm(step, matrices)), std::sqrt(expected),
                1e-6);
    optimizer.Update(step, 1e-2, 1);
    EXPECT_EQ(weights(), identity);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(optimizer.moments().first[alphas.offset + i], 0);
      EXPECT_EQ(optimizer.moments().second[alphas.offset + i], 0);
    }
  }
  EXPECT_EQ(optimizer.updates(), 2);
  EXPECT_EQ(optimizer.dwa_updates(), 0);

  // The first update of a new parameter is the rate, whatever the size of the gradient.
  FillGradients(model, 1);
  const std::vector<float> g = Copy(model.gradients().subspan(alphas.offset, 3));
  optimizer.Update(2, 1e-2, 1);
  EXPECT_EQ(optimizer.dwa_updates(), 1);
  for (int i = 0; i < 3; ++i) {
    const float decayed = identity[i] * (1 - 1e-2f * 0.1f);
    EXPECT_NEAR(weights()[i], decayed - std::copysign(1e-2f, g[i]), 1e-6);
  }
}

TEST(OptimizerTest, GradientNormSeesWhatIsNotFinite) {
  const TrainOptions options = Options();
  Model model = TestModel(options);
  Optimizer optimizer(model, options);
  EXPECT_EQ(optimizer.SquaredGradientNorm(0, 0), 0);
  model.gradients()[17] = std::nanf("");
  EXPECT_FALSE(std::isfinite(optimizer.SquaredGradientNorm(0, 0)));
}

}  // namespace
}  // namespace denseformer
