// The stages of a pipeline, one after the other in this process, against the whole model: equal
// loss and gradients, and what crosses the cuts is what the plan says.
#include "model/stage_pass.h"

#include <gtest/gtest.h>

#include <deque>
#include <fstream>

#include "base/error_testing.h"
#include "base/testing.h"
#include "model/head.h"
#include "model/mask_file.h"
#include "model/testing.h"

namespace denseformer {
namespace {

// A pipeline without processes: each stage has its own model and activations.
class Stages {
 public:
  Stages(const Model& whole, const std::vector<int>& cuts, const RandomBatch& batch, bool recompute)
      : whole_(whole), batch_(batch) {
    for (const Stage& stage : PlanStages(whole.pattern(), cuts)) {
      Model& model =
          models_.emplace_back(whole.config(), whole.compute(), ModelUse::kTraining, &stage);
      for (const Parameter& p : model.table().all()) {
        const Parameter& q = *whole.table().Find(p.name);
        std::copy_n(whole.weights().begin() + q.offset, p.count(),
                    model.weights().begin() + p.offset);
      }
      model.WeightsChanged();
      activations_.emplace_back(model, batch.sequences, batch.length, ModelUse::kTraining,
                                recompute);
    }
  }

  double Run(const DropoutOptions& dropout, Gradients gradients) {
    crossed.clear();
    for (size_t s = 0; s < models_.size(); ++s) {
      if (s > 0) {
        ForwardTensors(models_[s - 1], CutSide::kOut, activations_[s - 1], from_);
        ForwardTensors(models_[s], CutSide::kIn, activations_[s], to_);
        Move();
      }
      StageForward(models_[s], batch_.tokens, dropout, activations_[s]);
    }
    const int64_t targets = CountTargets(batch_.targets);
    double loss = 0;
    for (size_t s = models_.size(); s-- > 0;) {
      Activations& a = activations_[s];
      StartBackward(models_[s], gradients, a);
      if (s + 1 == models_.size()) {
        const std::span<float> losses = std::span<float>(a.losses).first(a.rows());
        HeadForwardBackward(models_[s], a, batch_.targets, 1.0f / static_cast<float>(targets),
                            gradients, losses);
        loss = MeanLoss(losses, targets);
      } else {
        BackwardTensors(models_[s + 1], CutSide::kIn, activations_[s + 1], from_);
        BackwardTensors(models_[s], CutSide::kOut, a, to_);
        Move();
      }
      StageBackward(models_[s], batch_.tokens, dropout, gradients, a);
    }
    return loss;
  }

  // The gradients of all stages, those of shared parameters summed.
  std::vector<float> Gradient() const {
    std::vector<float> sum(whole_.gradients().size());
    for (const Model& model : models_) {
      for (const Parameter& p : model.table().all()) {
        const Parameter& q = *whole_.table().Find(p.name);
        for (int64_t e = 0; e < p.count(); ++e) {
          sum[q.offset + e] += model.gradients()[p.offset + e];
        }
      }
    }
    return sum;
  }

  std::vector<int> crossed;  // tensors per cut: forward, then backward from the last

 private:
  void Move() {
    ASSERT_EQ(from_.size(), to_.size());
    crossed.push_back(static_cast<int>(from_.size()));
    for (size_t t = 0; t < from_.size(); ++t) {
      ASSERT_EQ(from_[t].dtype(), to_[t].dtype());
      ASSERT_EQ(from_[t].bytes(), to_[t].bytes());
      std::memcpy(to_[t].raw(), from_[t].raw(), from_[t].bytes());
    }
  }

  const Model& whole_;
  const RandomBatch& batch_;
  std::deque<Model> models_;
  std::deque<Activations> activations_;
  std::vector<Tensor> from_, to_;
};

// Partial sums that cross a cut may add up in another order, so that bits differ. Measured with
// AVX-512, AVX2 and the baseline: at most 6e-6 of the largest value of a tensor, most tensors
// equal.
constexpr double kTolerance = 2e-5;

// A gain is one number, which may cancel as a whole: all gains are compared as one tensor.
double WorstGradient(const Model& model, const std::vector<float>& got,
                     const std::vector<float>& expected) {
  double worst = 0;
  std::vector<float> got_gains, expected_gains;
  for (const Parameter& p : model.table().all()) {
    const std::span<const float> part = Slice<float>(got, p), wanted = Slice<float>(expected, p);
    if (p.group == ParameterGroup::kGain) {
      got_gains.insert(got_gains.end(), part.begin(), part.end());
      expected_gains.insert(expected_gains.end(), wanted.begin(), wanted.end());
    } else {
      worst = std::max(worst, RelativeError(part, wanted));
    }
  }
  return std::max(worst, RelativeError<float>(got_gains, expected_gains));
}

struct Case {
  const char* dwa;
  std::vector<int> cuts;
};

class StagePassTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Recompute, StagePassTest, testing::Bool());

TEST_P(StagePassTest, EqualsTheWholeModel) {
  const TemporaryDirectory scratch;
  // Sums and sources of one module on both sides, in no order.
  std::ofstream(scratch / "mask") << "01\n001\n1011\n0\n010101\n1110011\n";
  const std::string mask = ResolveDepthPattern(scratch / "mask", 6);
  const Case cases[] = {
      {"none", {2, 4}},       {"1x1", {3}},          {"1x1", {1, 2, 5}},      {"2x3", {2, 4}},
      {"1x2", {1, 3, 4}},     {"last:3", {2, 4, 5}}, {"final", {2, 3}},       {"grouped:2x3", {3}},
      {mask.c_str(), {2, 4}}, {mask.c_str(), {1}},   {"1x1", {1, 2, 3, 4, 5}}};
  for (const Case& c : cases) {
    const Model model = RandomModel(SmallConfig(c.dwa, /*gains=*/true, /*bias=*/true));
    const RandomBatch batch(model.config(), 2, 13, 3, /*ignore_every=*/5);
    const DropoutOptions dropout = {0.1f, 7, 5};
    Activations a(model, 2, 13, ModelUse::kTraining, GetParam());
    const double loss = ForwardBackward(model, batch.batch(), dropout, 1, Gradients::kReplace, a);
    const std::vector<float> expected(model.gradients().begin(), model.gradients().end());

    Stages stages(model, c.cuts, batch, GetParam());
    const double got = stages.Run(dropout, Gradients::kReplace);
    const std::string name = std::string(c.dwa) + ", first cut " + std::to_string(c.cuts[0]);
    EXPECT_NEAR(got, loss, 1e-6 * loss) << name;
    EXPECT_LT(WorstGradient(model, stages.Gradient(), expected), kTolerance) << name;

    const std::vector<Cut> plan = PlanCuts(model.pattern(), c.cuts);
    std::vector<int> planned;
    for (const Cut& cut : plan) planned.push_back(1 + cut.tensors());
    for (size_t p = plan.size(); p-- > 0;) planned.push_back(planned[p]);
    EXPECT_EQ(stages.crossed, planned) << name;

    // A second pass adds, from memory that the first one left.
    stages.Run(dropout, Gradients::kAdd);
    std::vector<float> twice = expected;
    for (float& value : twice) value *= 2;
    EXPECT_LT(WorstGradient(model, stages.Gradient(), twice), kTolerance) << name;
  }
}

TEST(StagePassTest, EqualsTheWholeModelInBf16) {
  const Model model = RandomModel(SmallConfig("1x2"), DType::kBF16);
  const RandomBatch batch(model.config(), 2, 13, 3);
  Activations a(model, 2, 13, ModelUse::kTraining);
  const double loss = ForwardBackward(model, batch.batch(), {}, 1, Gradients::kReplace, a);
  const std::vector<float> expected(model.gradients().begin(), model.gradients().end());
  Stages stages(model, {1, 4}, batch, /*recompute=*/false);
  EXPECT_NEAR(stages.Run({}, Gradients::kReplace), loss, 1e-4 * loss);
  EXPECT_LT(WorstGradient(model, stages.Gradient(), expected), 2e-2);
}

TEST(StagePassTest, RandomMasksEqualTheWholeModel) {
  const TemporaryDirectory scratch;
  Random random(5, HashName("masks"));
  for (int trial = 0; trial < 12; ++trial) {
    ModelConfig config = SmallConfig("none");
    config.n_layer = 9;
    config.n_head = 1;
    config.n_embd = 8;
    std::string text;
    for (int i = 1; i <= config.n_layer; ++i) {
      const bool module = random.Uniform() < 0.8f;
      for (int j = 0; j < i && module; ++j) text += random.Uniform() < 0.5f ? '1' : '0';
      text += module ? "1\n" : "0\n";
    }
    std::ofstream(scratch / "mask") << text;
    config.dwa = ResolveDepthPattern(scratch / "mask", config.n_layer);
    const Model model = RandomModel(config);
    const RandomBatch batch(config, 1, 7, 3);
    Activations a(model, 1, 7, ModelUse::kTraining);
    const double loss = ForwardBackward(model, batch.batch(), {}, 1, Gradients::kReplace, a);
    const std::vector<float> expected(model.gradients().begin(), model.gradients().end());
    const int cut = 1 + static_cast<int>(random.Below(3));
    Stages stages(model, {cut, cut + 2, cut + 4}, batch, /*recompute=*/false);
    EXPECT_NEAR(stages.Run({}, Gradients::kReplace), loss, 1e-6 * loss) << text << cut;
    EXPECT_LT(WorstGradient(model, stages.Gradient(), expected), kTolerance) << text << cut;
  }
}

TEST(StageTest, HoldsItsBlocksOnly) {
  const ModelConfig config = SmallConfig("2x3", true, true);
  const DepthPattern pattern = DepthPattern::Parse(config.dwa, config.n_layer);
  const ParameterTable whole(config, pattern);
  int64_t blocks = 0, whole_blocks = 0, counted = 0;
  size_t embeddings = 0, norms = 0;
  for (const Stage& stage : PlanStages(pattern, {2, 4})) {
    const ParameterTable table(config, pattern, stage);
    for (const Parameter& p : table.all()) {
      if (p.block > 0 && !p.mixes()) {
        EXPECT_TRUE(stage.blocks.contains(p.block)) << p.name;
        blocks += p.count();
      }
      if (p.counted) counted += p.count();
      embeddings += p.group == ParameterGroup::kEmbedding;
      norms += p.name.starts_with("transformer.ln_f");
    }
    EXPECT_EQ(table.count(ParameterGroup::kDwa), whole.count(ParameterGroup::kDwa));
    EXPECT_LT(Activations::Bytes(config, DType::kF32, 2, 13, ModelUse::kTraining, false, &stage),
              Activations::Bytes(config, DType::kF32, 2, 13, ModelUse::kTraining) * 2 / 3);
  }
  for (const Parameter& p : whole.all()) whole_blocks += p.block > 0 && !p.mixes() ? p.count() : 0;
  EXPECT_EQ(blocks, whole_blocks);
  EXPECT_EQ(counted, whole.count());
  EXPECT_EQ(embeddings, 2u);
  EXPECT_EQ(norms, 2u);  // weight and bias
}

TEST(StageTest, RefusesMixersThatCannotBeSplit) {
  ModelConfig config = SmallConfig("1x1");
  config.mixer = "dynamic";
  ExpectError(ErrorCode::kUnsupported, "pipeline: partial sums cross the cuts",
              [&] { RequireSplittable(config); });
}

}  // namespace
}  // namespace denseformer
