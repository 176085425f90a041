#include "train/train_step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "model/testing.h"

namespace denseformer {
namespace {

TrainOptions Options(int passes) {
  TrainOptions options = PresetOptions("test");
  options.model = SmallConfig("2x1");
  options.accumulate = passes;
  return options;
}

// One process: its model, and the step that it takes.
struct Process {
  explicit Process(const TrainOptions& options, StepReducer* reducer = nullptr)
      : model(RandomModel(options.model)),
        activations(model, 2, 16, ModelUse::kTraining),
        step(model, activations, options, {reducer, {}}) {}

  StepResult Run(const std::vector<RandomBatch>& passes) {
    return step.Run(0, 1e-2, [&](int64_t, int pass) { return passes[pass].batch(); });
  }

  Model model;
  Activations activations;
  TrainStep step;
};

std::vector<float> Copy(std::span<const float> values) { return {values.begin(), values.end()}; }

std::vector<RandomBatch> Batches(int count) {
  std::vector<RandomBatch> batches;
  for (int i = 0; i < count; ++i) batches.emplace_back(SmallConfig("2x1"), 2, 16, 10 + i);
  return batches;
}

// The mean of this process and one other.
class OtherProcess : public StepReducer {
 public:
  OtherProcess(std::vector<float> gradients, double loss)
      : gradients_(std::move(gradients)), loss_(loss) {}
  void Reduce(std::span<float> gradients, double& loss) override {
    for (size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = 0.5f * (gradients[i] + gradients_[i]);
    }
    loss = 0.5 * (loss + loss_);
  }

 private:
  std::vector<float> gradients_;
  double loss_;
};

TEST(TrainStepTest, AReducedStepEqualsAnAccumulatedOne) {
  const std::vector<RandomBatch> batches = Batches(2);
  Process both(Options(2));
  const StepResult expected = both.Run(batches);

  Process other(Options(1));
  const StepResult half = other.Run({batches[1]});
  OtherProcess reducer(Copy(other.model.gradients()), half.loss);
  Process one(Options(1), &reducer);
  const StepResult reduced = one.Run({batches[0]});

  EXPECT_TRUE(reduced.updated);
  EXPECT_NEAR(reduced.loss, expected.loss, 1e-6 * expected.loss);
  // Of the reduced gradients, not of those that the backward pass of this process squared.
  EXPECT_NEAR(reduced.norm, expected.norm, 1e-5 * expected.norm);
  EXPECT_GT(std::abs(half.norm - expected.norm), 1e-3 * expected.norm);
  EXPECT_LT(RelativeError<float>(one.model.gradients(), both.model.gradients()), 1e-5);
}

TEST(TrainStepTest, TheNormIsThatOfAllProcesses) {
  class Squares : public StepReducer {
    void Reduce(std::span<float>, double&) override {}
    double ReduceSquares(double squares) override { return 4 * squares; }
  } squares;
  const std::vector<RandomBatch> batches = Batches(1);
  Process alone(Options(1)), shared(Options(1), &squares);
  const double norm = alone.Run(batches).norm;
  EXPECT_NEAR(shared.Run(batches).norm, 2 * norm, 1e-5 * norm);
}

TEST(TrainStepTest, ClippingLimitsTheNorm) {
  const std::vector<RandomBatch> batches = Batches(1);
  TrainOptions options = Options(1);
  Process plain(options);
  const double norm = plain.Run(batches).norm;
  // Epsilon above every gradient makes AdamW's update proportional to it.
  options.epsilon = 1;
  options.weight_decay = 0;
  Process full(options);
  options.clip = norm / 1000;
  Process clipped(options);
  const std::vector<float> before = Copy(full.model.weights());
  full.Run(batches);
  EXPECT_NEAR(clipped.Run(batches).norm, norm, 1e-6 * norm);
  double moved = 0, moved_clipped = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    moved = std::max(moved, std::abs(double{full.model.weights()[i]} - before[i]));
    moved_clipped =
        std::max(moved_clipped, std::abs(double{clipped.model.weights()[i]} - before[i]));
  }
  EXPECT_GT(moved, 20 * moved_clipped);
}

TEST(TrainStepTest, ANonFiniteLossChangesNoWeight) {
  Process process(Options(2));
  process.model.tensors().wte.f32()[0] = INFINITY;
  process.model.WeightsChanged();
  const std::vector<float> before = Copy(process.model.weights());
  std::vector<RandomBatch> batches = Batches(2);
  batches[0].tokens[0] = 0;
  int passes = 0;
  const StepResult result = process.step.Run(0, 1e-2, [&](int64_t, int pass) {
    ++passes;
    return batches[pass].batch();
  });
  EXPECT_FALSE(result.updated);
  EXPECT_FALSE(std::isfinite(result.loss));
  EXPECT_EQ(passes, 1) << "the batch to blame must stay the newest one";
  EXPECT_TRUE(SameBits(before, Copy(process.model.weights())));
  EXPECT_EQ(process.step.optimizer().updates(), 0);
}

}  // namespace
}  // namespace denseformer
