// Gradients of the passes against differences of the loss, with and without dropout.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/testing.h"

namespace denseformer {
namespace {

// Loss along weights + t * direction, both within one parameter.
double LossAt(Model& model, const RandomBatch& batch, const Parameter& parameter,
              const std::vector<float>& direction, float t, const DropoutOptions& dropout,
              Activations& activations) {
  const std::span<float> data =
      model.weights().subspan(parameter.offset, static_cast<size_t>(parameter.count()));
  const std::vector<float> kept(data.begin(), data.end());
  for (size_t i = 0; i < data.size(); ++i) data[i] += t * direction[i];
  model.WeightsChanged();
  const double loss =
      ForwardBackward(model, batch.batch(), dropout, 1.0f, Gradients::kReplace, activations);
  std::copy(kept.begin(), kept.end(), data.begin());
  return loss;
}

// Compares <gradient, direction> with central differences, for the direction of the gradient itself
// (are its length and sense right?) and a random one (is anything missing in it?).
void ExpectGradientsMatchDifferences(const ModelConfig& config, const DropoutOptions& dropout) {
  SCOPED_TRACE(fmt::format("dwa {} mixer {} streams {} norm {} gains {} bias {} dropout {}",
                           config.dwa, config.mixer, config.streams, config.mixer_norm,
                           config.gains, config.bias, dropout.probability));
  const ThreadsGuard guard(1);  // thousands of passes too small to share
  Model model = RandomModel(config);
  const RandomBatch batch(config, 2, 7, 3, /*ignore_every=*/5);
  Activations activations(model, 2, 7, ModelUse::kTraining);
  ForwardBackward(model, batch.batch(), dropout, 1.0f, Gradients::kReplace, activations);
  const std::vector<float> gradients(model.gradients().begin(), model.gradients().end());

  for (const Parameter& parameter : model.table().all()) {
    const std::span<const float> gradient = Slice(std::span<const float>(gradients), parameter);
    double square = 0;
    for (float g : gradient) square += static_cast<double>(g) * g;
    const double norm = std::sqrt(square);
    ASSERT_GT(norm, 0) << parameter.name;
    Random random(7, HashName(parameter.name));
    for (const bool along : {true, false}) {
      std::vector<float> direction(gradient.begin(), gradient.end());
      double length = norm;
      if (!along) {
        length = 0;
        for (float& value : direction) {
          value = random.Normal();
          length += value * value;
        }
        length = std::sqrt(length);
      }
      double expected = 0;
      for (size_t i = 0; i < direction.size(); ++i) {
        direction[i] /= static_cast<float>(length);
        expected += static_cast<double>(direction[i]) * gradient[i];
      }
      constexpr float kStep = 4e-3f;
      const auto loss = [&](float t) {
        return LossAt(model, batch, parameter, direction, t, dropout, activations);
      };
      // Fourth order, so that the step can be large against the rounding of the loss.
      const double difference =
          (8 * (loss(kStep) - loss(-kStep)) - (loss(2 * kStep) - loss(-2 * kStep))) / (12 * kStep);
      EXPECT_NEAR(difference, expected, 5e-3 * norm + 1e-3)
          << parameter.name << (along ? " along the gradient" : " in a random direction");
    }
  }
}

TEST(GradientsTest, MatchFiniteDifferences) {
  for (const char* pattern : {"none", "1x1", "4x2", "last:1", "final", "grouped:1x2"}) {
    for (const bool extras : {false, true}) {
      ModelConfig config = SmallConfig(pattern, extras, extras);
      config.n_layer = 4;
      config.n_embd = 12;
      ExpectGradientsMatchDifferences(config, DropoutOptions());
    }
  }
}

TEST(GradientsTest, OfMixersMatchFiniteDifferences) {
  for (const char* mixer : {"static", "dynamic", "attention", "attnres"}) {
    for (const char* streams : {"r", "rv", "rqkv"}) {
      for (const char* norm : {"none", "prepost"}) {
        if (std::string(norm) == "prepost" && std::string(mixer) != "dynamic") continue;
        for (const char* pattern : {"1x1", "2x2"}) {
          ModelConfig config = SmallConfig(pattern, /*gains=*/true, /*bias=*/true);
          config.n_layer = 3;
          config.n_embd = 12;
          config.mixer = mixer;
          config.streams = streams;
          config.mixer_norm = norm;
          ExpectGradientsMatchDifferences(config, {/*probability=*/0.25f, /*seed=*/3, /*step=*/2});
        }
      }
    }
  }
}

TEST(GradientsTest, WithDropoutMatchFiniteDifferences) {
  ModelConfig config = SmallConfig("2x1", /*gains=*/true, /*bias=*/true);
  config.n_layer = 3;
  config.n_embd = 12;
  ExpectGradientsMatchDifferences(config, {/*probability=*/0.25f, /*seed=*/3, /*step=*/2});
}

TEST(GradientsTest, DropoutDependsOnSeedAndStepOnly) {
  Model model = RandomModel(SmallConfig("1x1"));
  const RandomBatch batch(model.config(), 2, 9, 3);
  Activations activations(model, 2, 9, ModelUse::kTraining);
  const auto loss = [&](float probability, uint64_t seed, uint64_t step) {
    return ForwardBackward(model, batch.batch(), {probability, seed, step}, 1.0f,
                           Gradients::kReplace, activations);
  };
  const double expected = loss(0.2f, 1, 1);
  EXPECT_EQ(loss(0.2f, 1, 1), expected);
  EXPECT_NE(loss(0.2f, 1, 2), expected);
  EXPECT_NE(loss(0.2f, 2, 1), expected);
  EXPECT_EQ(loss(0.0f, 2, 1), loss(0.0f, 1, 2));
}

}  // namespace
}  // namespace denseformer
