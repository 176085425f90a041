#include "kernels/dwa/dwa.h"

#include <gtest/gtest.h>
#include <hwy/cache_control.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "base/random.h"
#include "kernels/dwa/dwa_passes.h"
#include "kernels/dwa/dwa_testing.h"
#include "kernels/stream.h"

namespace denseformer {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

constexpr int kDepths[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 48};

class DwaTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(History, DwaTest, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return DTypeName(info.param); });

TEST_P(DwaTest, EqualsTheFormulaForEveryPattern) {
  for (int depth : kDepths) {
    for (const DepthPattern& pattern : DwaPatterns(depth)) {
      SCOPED_TRACE(pattern.ToString() + " at depth " + std::to_string(depth));
      DwaProblem problem(pattern, 3, 91, GetParam());
      problem.ExpectForward(problem.Forward());
      problem.ExpectBackward(problem.Backward());
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(DwaTest, EqualsTheFormulaForAwkwardSizes) {
  const std::pair<int64_t, int64_t> sizes[] = {{1, 1},   {1, 7},   {7, 1},   {1, 16},  {5, 31},
                                               {1, 127}, {1, 128}, {1, 129}, {9, 768}, {64, 65}};
  for (const auto& [rows, cols] : sizes) {
    for (const char* spec : {"1x1", "4x5", "last:9"}) {
      SCOPED_TRACE(std::string(spec) + ", " + Shape({rows, cols}).ToString());
      DwaProblem problem(DepthPattern::Parse(spec, 13), rows, cols, GetParam());
      problem.ExpectForward(problem.Forward());
      problem.ExpectBackward(problem.Backward());
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(DwaTest, SameBitsForAnyNumberOfThreads) {
  const int before = NumThreads();
  for (const char* spec : {"1x1", "4x1", "4x5", "final"}) {
    DwaProblem problem(DepthPattern::Parse(spec, 20), 131, 770, GetParam());
    SetNumThreads(1);
    const auto y = problem.Forward();
    const DwaProblem::Gradients gradients = problem.Backward();
    for (int threads : {2, 3}) {
      SetNumThreads(threads);
      EXPECT_EQ(y, problem.Forward()) << spec;
      const DwaProblem::Gradients again = problem.Backward();
      EXPECT_EQ(gradients.dx, again.dx) << spec;
      EXPECT_EQ(gradients.dalpha, again.dalpha) << spec;
    }
  }
  SetNumThreads(before);
}

// As many elements as make the partial sums use non-temporal stores.
TEST_P(DwaTest, EqualsTheFormulaForLargeSizes) {
  const int before = NumThreads();
  SetNumThreads(1);
  DwaProblem problem(DepthPattern::Parse("1x1", 9), 400, 771, GetParam());
  ASSERT_TRUE(StoredPastCache(400 * 771 * 4));
  problem.ExpectForward(problem.Forward());
  SetNumThreads(before);
}

TEST_P(DwaTest, SameBitsThroughAndPastTheCache) {
  constexpr int kSources = 3;
  constexpr int64_t kCount = 333;
  DwaProblem problem(DepthPattern::Parse("1x1", kSources), 1, kCount, GetParam());
  const std::vector<Tensor> history = problem.History();
  const void* sources[kSources];
  for (int k = 0; k < kSources; ++k) sources[k] = history[k].raw();
  std::vector<float> weights(kSources * kMostAverages);
  Random random(2);
  for (float& weight : weights) weight = random.Normal();
  const uint8_t skipped[kSources] = {0, 2, 0};
  for (int outputs = 1; outputs <= kMostAverages; ++outputs) {
    for (const int64_t offset : {0, 1, 16}) {  // of the outputs, in elements
      const auto run = [&](bool past) {
        const Storage storage(kMostAverages * 512 * sizeof(float));
        float* memory = static_cast<float*>(storage.data());
        AveragePass pass;
        pass.sources = kSources;
        pass.source = sources;
        pass.dtype = GetParam();
        pass.weights = weights.data();
        pass.skipped = skipped;
        pass.outputs = outputs;
        for (int o = 0; o < outputs; ++o) pass.output[o] = memory + o * 512 + offset;
        pass.past = past;
        RunAveragePass(pass, 0, 32);
        RunAveragePass(pass, 32, kCount);
        hwy::FlushStream();
        return std::vector<float>(memory, memory + kMostAverages * 512);
      };
      EXPECT_EQ(run(false), run(true)) << outputs << " " << offset;
    }
  }
}

TEST_P(DwaTest, SameBitsWithoutLookAhead) {
  for (const char* spec : {"1x1", "2x1", "last:12"}) {
    for (int group : {1, 2, 3, 4, 5, 6, 7, 8}) {
      DwaProblem problem(DepthPattern::Parse(spec, 25), 3, 259, GetParam());
      // Weights of 0 here and there, and a module and a source with nothing but zeros.
      for (auto& alpha : problem.alpha()) {
        for (size_t k = 0; k < alpha.size(); k += 3) alpha[k] = 0;
      }
      std::fill(problem.alpha()[14].begin(), problem.alpha()[14].end(), 0.0f);
      AveragerOptions single, ahead;
      single.forward.group = single.backward.group = 1;
      ahead.forward = {.group = group, .slots = 9, .worth = 1};
      ahead.backward = {.group = std::min(group, 4), .slots = 9, .worth = 1};
      EXPECT_EQ(problem.Forward(single), problem.Forward(ahead)) << spec << ", " << group;
      EXPECT_EQ(problem.Backward(single).dx, problem.Backward(ahead).dx) << spec << ", " << group;
      problem.ExpectForward(problem.Forward(ahead));
      problem.ExpectBackward(problem.Backward(ahead));
      if (HasFatalFailure()) return;
    }
  }
}

// Stages that pass partial sums on give what one process gives, bit for bit.
TEST_P(DwaTest, SplitAveragesEqualTheWhole) {
  for (const std::vector<int>& begins :
       {std::vector<int>{0}, {0, 1}, {0, 7}, {0, 4, 9}, {0, 3, 4, 12}}) {
    for (const DepthPattern& pattern : DwaPatterns(13)) {
      SCOPED_TRACE(pattern.ToString() + ", last stage from " + std::to_string(begins.back()));
      DwaProblem problem(pattern, 3, 91, GetParam());
      // Weights of 0 take no part, and neither does a stage without any other weight.
      for (auto& alpha : problem.alpha()) {
        for (size_t k = 0; k + 1 < alpha.size(); k += 4) alpha[k] = 0;
      }
      EXPECT_EQ(problem.Forward(), problem.SplitForward(begins));
      const DwaProblem::Gradients split = problem.SplitBackward(begins);
      EXPECT_EQ(problem.Backward().dx, split.dx);
      EXPECT_EQ(problem.Backward(kNoLookAhead).dalpha, split.dalpha);
    }
  }
}

std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

TEST_P(DwaTest, InitialWeightsGiveTheNewestBitForBit) {
  for (const DepthPattern& pattern : DwaPatterns(12)) {
    SCOPED_TRACE(pattern.ToString());
    DwaProblem problem(pattern, 3, 50, GetParam());
    problem.SetIdentity();
    for (auto& x : problem.x()) {
      x[3] = -0.0f;
      x[17] = kNaN;
      x[18] = -kInfinity;
      x[149] = 1e-41f;  // subnormal
    }
    for (int j = 0; j < 12; ++j) problem.x()[j][50] = j % 2 == 0 ? kInfinity : kNaN;
    for (auto& dy : problem.dy()) dy[3] = -0.0f;
    for (auto& gradient : problem.own_gradient()) gradient[4] = -0.0f;
    problem.Store();
    const auto y = problem.Forward();
    const DwaProblem::Gradients gradients = problem.Backward();
    for (int i = 0; i <= 12; ++i) {
      if (pattern.has_module(i)) {
        EXPECT_EQ(Bits(y[i]), Bits(problem.x()[i])) << "depth " << i;
        EXPECT_EQ(Bits(gradients.dx[i]), Bits(problem.dy()[i])) << "depth " << i;
      } else {
        EXPECT_EQ(Bits(gradients.dx[i]), Bits(problem.own_gradient()[i])) << "depth " << i;
      }
    }
  }
}

TEST_P(DwaTest, NonFiniteSourcesReachTheAverageAndItsGradient) {
  const DepthPattern pattern = DepthPattern::Parse("1x1", 9);
  DwaProblem problem(pattern, 2, 40, GetParam());
  problem.x()[2][5] = kInfinity;
  problem.x()[3][6] = kNaN;
  problem.dy()[4][7] = kNaN;
  problem.Store();
  const auto y = problem.Forward();
  const DwaProblem::Gradients gradients = problem.Backward();
  for (int i = 1; i <= 9; ++i) {
    EXPECT_EQ(std::isinf(y[i][5]), i >= 2) << i;
    EXPECT_EQ(std::isnan(y[i][6]), i >= 3) << i;
    EXPECT_TRUE(std::isfinite(y[i][8])) << i;
  }
  for (int j = 0; j <= 9; ++j) EXPECT_EQ(std::isnan(gradients.dx[j][7]), j <= 4) << j;
  EXPECT_TRUE(std::isnan(gradients.dalpha[4][0]));
  EXPECT_TRUE(std::isinf(gradients.dalpha[5][2]));
  EXPECT_TRUE(std::isfinite(gradients.dalpha[5][1]));
}

// Also within one pass over the history, where some of the sums take a source and others do not.
TEST_P(DwaTest, NonFiniteSourcesOfWeightZeroTakeNoPart) {
  DwaProblem problem(DepthPattern::Parse("1x1", 25), 3, 259, GetParam());
  for (int j = 0; j < 25; j += 2) {
    for (int64_t e = j; e < 3 * 259; e += 13) problem.x()[j][e] = e % 2 == 0 ? kNaN : kInfinity;
    for (int i = j + 1; i <= 25; i += 1 + j % 3) problem.alpha()[i][j] = 0;
  }
  problem.Store();
  const auto y = problem.Forward();
  for (int i = 1; i <= 25; ++i) {
    for (int64_t e = 0; e < 3 * 259; ++e) {
      bool finite = true;
      for (int j = 0; j <= i; ++j) {
        finite = finite && (problem.alpha()[i][j] == 0 || std::isfinite(problem.Stored(j, e)));
      }
      ASSERT_EQ(std::isfinite(y[i][e]), finite) << "depth " << i << ", element " << e;
    }
  }
}

TEST_P(DwaTest, WithoutWeightsTheAverageIsZero) {
  DwaProblem problem(DepthPattern::Parse("2x1", 5), 3, 33, GetParam());
  for (auto& alpha : problem.alpha()) std::fill(alpha.begin(), alpha.end(), 0.0f);
  const auto y = problem.Forward();
  for (int i = 1; i <= 5; ++i) EXPECT_EQ(y[i], std::vector<float>(99, 0.0f));
  problem.ExpectBackward(problem.Backward());
}

TEST(DwaTest, TakesGradientsInBf16AndSkipsAbsentOnes) {
  const DepthPattern pattern = DepthPattern::Parse("1x1", 9);
  DwaProblem problem(pattern, 3, 70, DType::kBF16);
  for (auto& dy : problem.dy()) {
    for (float& value : dy) value = static_cast<float>(bf16(value));
  }
  std::fill(problem.dy()[4].begin(), problem.dy()[4].end(), 0.0f);
  const DwaProblem::Gradients full = problem.Backward();
  const DwaProblem::Gradients same = problem.Backward({}, DType::kBF16, /*absent=*/4);
  EXPECT_EQ(full.dx, same.dx);
  EXPECT_EQ(full.dalpha, same.dalpha);
}

TEST(DwaTest, ServesFewerRowsThanPlanned) {
  const DepthPattern pattern = DepthPattern::Parse("1x1", 1);
  Arena arena(1 << 20);
  DepthAverager averager(pattern, 64, 8, arena);
  std::vector<float> x0(8, 2.0f), x1(8, 3.0f), alpha = {0.5f, 2.0f};
  const Tensor history[] = {Tensor(x0.data(), {1, 8})};
  const float* alphas[] = {nullptr, alpha.data()};
  averager.StartForward(alphas);
  averager.Forward(1, Tensor(x1.data(), {1, 8}), history, Tensor(x1.data(), {1, 8}));
  EXPECT_EQ(x1, std::vector<float>(8, 7.0f));
}

}  // namespace
}  // namespace denseformer
