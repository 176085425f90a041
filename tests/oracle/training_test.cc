// Ten training steps in fp32 against libtorch: the same initial weights, batches, schedule, decay
// groups and clipping; every loss within 1e-5.
#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "oracle/torch_adamw.h"
#include "oracle/torch_oracle.h"
#include "train/train_step.h"

namespace denseformer {
namespace {

struct Variant {
  const char* name;
  const char* dwa;
  bool gains, bias;
  double clip;
};

class TrainingOracleTest : public testing::TestWithParam<Variant> {};

TEST_P(TrainingOracleTest, TenStepsAgree) {
  constexpr int kSteps = 10;
  constexpr int64_t kSequences = 4;
  TrainOptions options = PresetOptions("test");
  options.model.n_layer = 6;
  options.model.dwa = GetParam().dwa;
  options.model.gains = GetParam().gains;
  options.model.bias = GetParam().bias;
  options.steps = kSteps;
  options.warmup = 0.3;
  options.clip = GetParam().clip;
  const int64_t length = options.model.seq_len;

  Model ours(options.model, DType::kF32, ModelUse::kTraining);
  Model theirs(options.model, DType::kF32, ModelUse::kTraining);
  ours.Initialize(5);
  theirs.Initialize(5);
  Activations activations(ours, kSequences, length, ModelUse::kTraining);
  TrainStep train_step(ours, activations, options);
  TorchAdamW torch_adamw(theirs, {});
  const Schedule schedule = options.MakeSchedule();

  double first = 0, last = 0;
  Random random(11);
  for (int step = 0; step < kSteps; ++step) {
    std::vector<int32_t> tokens(kSequences * length), targets(tokens.size());
    for (size_t n = 0; n < tokens.size(); ++n) {
      tokens[n] = static_cast<int32_t>(random.Below(options.model.vocab_size));
      targets[n] = (tokens[n] * 3 + 1) % options.model.vocab_size;
    }
    const Batch batch = {tokens, targets, kSequences, length};
    const double loss =
        train_step.Run(step, schedule.Rate(step), [&](int64_t, int) { return batch; }).loss;

    const OracleResult expected = RunOracle(theirs, batch, OraclePrecision::kSingle);
    torch_adamw.Step(expected.gradients, schedule.Rate(step), options.clip);
    (step == 0 ? first : last) = loss;
    EXPECT_NEAR(loss, expected.loss, 1e-5 * expected.loss) << "step " << step;
  }
  // They have moved, so the comparison says something.
  EXPECT_LT(last, first - 0.05);
}

INSTANTIATE_TEST_SUITE_P(Variants, TrainingOracleTest,
                         testing::Values(Variant{"transformer", "none", false, false, 0},
                                         Variant{"dense_1x1", "1x1", false, false, 0},
                                         Variant{"dense_4x5", "4x5", false, false, 0},
                                         Variant{"gains", "none", true, false, 0},
                                         Variant{"all_clipped", "2x1", true, true, 0.5}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace denseformer
