#include "kernels/dwa/dwa.h"

#include <gtest/gtest.h>
#include <hwy/cache_control.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "base/random.h"
#include "kernels/dwa/dwa_passes.h"
#include "kernels/stream.h"

namespace denseformer {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// A model's history, weights and gradients, and its averages: by the kernels, and in double.
class Problem {
 public:
  Problem(const DepthPattern& pattern, int64_t rows, int64_t cols, DType dtype, uint64_t seed = 1)
      : pattern_(pattern), shape_({rows, cols}), n_(rows * cols), dtype_(dtype) {
    Random random(seed);
    const int depths = pattern.depth() + 1;
    x_.resize(depths);
    dy_.resize(depths);
    stored_.resize(depths);
    alpha_.resize(depths);
    own_gradient_.resize(depths);
    for (int i = 0; i < depths; ++i) {
      x_[i] = Normals(random);
      dy_[i] = Normals(random);
      own_gradient_[i] = Normals(random);
      // One element of offset: kernels must not count on alignment.
      stored_[i].resize(n_ + 1);
      for (size_t k = 0; k < pattern.sources(i).size(); ++k) alpha_[i].push_back(random.Normal());
    }
    Store();
  }

  // Writes the history again after a change of x().
  void Store() {
    for (size_t i = 0; i < x_.size(); ++i) {
      for (int64_t e = 0; e < n_; ++e) stored_[i][e + 1] = bf16(x_[i][e]);
    }
  }

  std::vector<std::vector<float>>& x() { return x_; }
  std::vector<std::vector<float>>& alpha() { return alpha_; }
  std::vector<std::vector<float>>& dy() { return dy_; }
  std::vector<std::vector<float>>& own_gradient() { return own_gradient_; }

  float Stored(int j, int64_t e) const {
    return dtype_ == DType::kF32 ? x_[j][e] : static_cast<float>(stored_[j][e + 1]);
  }

  std::vector<Tensor> History() {
    std::vector<Tensor> history;
    for (size_t j = 0; j < x_.size(); ++j) {
      history.push_back(dtype_ == DType::kF32 ? Tensor(x_[j].data(), shape_)
                                              : Tensor(stored_[j].data() + 1, shape_));
    }
    return history;
  }

  // Y_i of every depth; empty where there is no module.
  std::vector<std::vector<float>> Forward(const AveragerOptions& options = AveragerOptions()) {
    Arena measure;
    DepthAverager(pattern_, shape_[0], shape_[1], measure, options);
    Arena arena(measure.peak());
    DepthAverager averager(pattern_, shape_[0], shape_[1], arena, options);
    std::vector<std::vector<float>> y(x_.size());
    const std::vector<Tensor> history = History();
    averager.StartForward(Pointers(alpha_));
    for (int i = 0; i <= pattern_.depth(); ++i) {
      if (!pattern_.has_module(i)) continue;
      y[i] = x_[i];  // aliases newest
      const Tensor out(y[i].data(), shape_);
      averager.Forward(i, out, std::span(history).first(i), out);
    }
    return y;
  }

  struct Gradients {
    std::vector<std::vector<float>> dx, dalpha;
  };

  // dY_absent is left out.
  Gradients Backward(const AveragerOptions& options = AveragerOptions(),
                     DType dy_dtype = DType::kF32, int absent = -1) {
    Arena measure;
    DepthAverager(pattern_, shape_[0], shape_[1], measure, options);
    Arena arena(measure.peak());
    DepthAverager averager(pattern_, shape_[0], shape_[1], arena, options);
    Gradients gradients{own_gradient_, {}};
    for (const auto& alpha : alpha_) gradients.dalpha.emplace_back(alpha.size(), 0.5f);
    std::vector<Tensor> dy;
    std::vector<std::vector<bf16>> short_dy;
    for (auto& gradient : dy_) {
      dy.emplace_back(gradient.data(), shape_);
      if (dy_dtype == DType::kF32) continue;
      short_dy.emplace_back();
      for (float value : gradient) short_dy.back().push_back(bf16(value));
      dy.back() = Tensor(short_dy.back().data(), shape_);
    }
    if (absent >= 0) dy[absent] = Tensor();
    std::vector<float*> dalphas;
    for (auto& dalpha : gradients.dalpha) {
      dalphas.push_back(dalpha.empty() ? nullptr : dalpha.data());
    }
    const std::vector<Tensor> history = History();
    for (int j = pattern_.depth(); j >= 0; --j) {
      averager.Backward(j, history, dy, Pointers(alpha_), dalphas,
                        Tensor(gradients.dx[j].data(), shape_));
    }
    return gradients;
  }

  // The same averages by stages that hold the depths [begins[s], begins[s + 1]) each: a stage sees
  // no other stage's history, only the partial sums that those exported.
  std::vector<std::vector<float>> SplitForward(const std::vector<int>& begins) {
    std::vector<Stage> stages = MakeStages(begins);
    std::vector<std::vector<float>> y(x_.size());
    for (Stage& stage : stages) stage.averager.StartForward(Pointers(alpha_));
    for (int i = 0; i <= pattern_.depth(); ++i) {
      if (!pattern_.has_module(i)) continue;
      y[i] = x_[i];
      std::vector<float> partial(n_);
      const Tensor sum(partial.data(), shape_), out(y[i].data(), shape_);
      bool started = false;
      for (Stage& stage : stages) {
        if (i >= stage.begin && i < stage.end) {
          if (started) stage.averager.ImportForward(i, stage.begin, sum);
          stage.averager.Forward(i, out, stage.history, out);
          break;
        }
        stage.averager.ExportForward(i, stage.begin, stage.end, stage.history,
                                     started ? sum : Tensor(), sum);
        started = true;
      }
    }
    return y;
  }

  Gradients SplitBackward(const std::vector<int>& begins) {
    std::vector<Stage> stages = MakeStages(begins);
    Gradients gradients{own_gradient_, {}};
    for (const auto& alpha : alpha_) gradients.dalpha.emplace_back(alpha.size(), 0.5f);
    std::vector<float*> dalphas;
    for (auto& dalpha : gradients.dalpha) {
      dalphas.push_back(dalpha.empty() ? nullptr : dalpha.data());
    }
    for (int j = pattern_.depth(); j >= 0; --j) {
      std::vector<float> partial(n_);
      const Tensor sum(partial.data(), shape_);
      bool started = false;
      for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
        if (j >= stage->begin) {
          if (started) stage->averager.ImportBackward(j, stage->end, sum);
          stage->averager.Backward(j, stage->history, stage->dy, Pointers(alpha_), dalphas,
                                   Tensor(gradients.dx[j].data(), shape_));
          break;
        }
        // This stage got X_j from the one that holds it.
        std::vector<Tensor> history = stage->history;
        history[j] = History()[j];
        stage->averager.ExportBackward(j, stage->begin, stage->end, history, stage->dy,
                                       Pointers(alpha_), dalphas, started ? sum : Tensor(), sum);
        started = true;
      }
    }
    return gradients;
  }

  void ExpectForward(const std::vector<std::vector<float>>& y) const {
    for (int i = 0; i <= pattern_.depth(); ++i) {
      if (!pattern_.has_module(i)) continue;
      const std::vector<int>& sources = pattern_.sources(i);
      for (int64_t e = 0; e < n_; ++e) {
        double sum = 0, size = 0;
        for (size_t k = 0; k < sources.size(); ++k) {
          const double x = sources[k] == i ? x_[i][e] : Stored(sources[k], e);
          sum += alpha_[i][k] * x;
          size += std::abs(alpha_[i][k] * x);
        }
        ASSERT_NEAR(y[i][e], sum, size * 3e-7) << "depth " << i << ", element " << e;
      }
    }
  }

  void ExpectBackward(const Gradients& gradients) const {
    for (int j = 0; j <= pattern_.depth(); ++j) {
      for (int64_t e = 0; e < n_; ++e) {
        const bool keeps = !pattern_.has_module(j) || pattern_.readers(j).empty();
        double sum = keeps ? own_gradient_[j][e] : 0, size = std::abs(sum);
        for (const DepthPattern::Reader& reader : pattern_.readers(j)) {
          const double term = double{alpha_[reader.depth][reader.index]} * dy_[reader.depth][e];
          sum += term;
          size += std::abs(term);
        }
        ASSERT_NEAR(gradients.dx[j][e], sum, size * 3e-7) << "depth " << j << ", element " << e;
      }
      for (const DepthPattern::Reader& reader : pattern_.readers(j)) {
        double dot = 0, size = 0;
        for (int64_t e = 0; e < n_; ++e) {
          dot += double{Stored(j, e)} * dy_[reader.depth][e];
          size += std::abs(double{Stored(j, e)} * dy_[reader.depth][e]);
        }
        ASSERT_NEAR(gradients.dalpha[reader.depth][reader.index], 0.5 + dot, (1 + size) * 3e-7)
            << "module " << reader.depth << ", source " << j;
      }
    }
  }

  void SetIdentity() {
    for (auto& alpha : alpha_) {
      std::fill(alpha.begin(), alpha.end(), 0.0f);
      if (!alpha.empty()) alpha.back() = 1;
    }
  }

 private:
  // One process: its averager, and nothing of the other depths.
  struct Stage {
    int begin, end;
    Arena arena;
    DepthAverager averager;
    std::vector<Tensor> history, dy;
  };

  std::vector<Stage> MakeStages(const std::vector<int>& begins) {
    Arena measure;
    DepthAverager(pattern_, shape_[0], shape_[1], measure, kNoLookAhead);
    std::vector<Stage> stages;
    for (size_t s = 0; s < begins.size(); ++s) {
      const int end = s + 1 < begins.size() ? begins[s + 1] : pattern_.depth() + 1;
      Arena arena(measure.peak());
      DepthAverager averager(pattern_, shape_[0], shape_[1], arena, kNoLookAhead);
      stages.push_back({begins[s], end, std::move(arena), std::move(averager), {}, {}});
      const std::vector<Tensor> history = History();
      for (int i = 0; i <= pattern_.depth(); ++i) {
        const bool held = i >= begins[s] && i < end;
        stages.back().history.push_back(held ? history[i] : Tensor());
        stages.back().dy.push_back(held ? Tensor(dy_[i].data(), shape_) : Tensor());
      }
    }
    return stages;
  }

  std::vector<float> Normals(Random& random) const {
    std::vector<float> values(n_);
    for (float& value : values) value = random.Normal();
    return values;
  }

  static std::vector<const float*> Pointers(const std::vector<std::vector<float>>& rows) {
    std::vector<const float*> pointers;
    for (const auto& row : rows) pointers.push_back(row.empty() ? nullptr : row.data());
    return pointers;
  }

  DepthPattern pattern_;
  Shape shape_;
  int64_t n_;
  DType dtype_;
  std::vector<std::vector<float>> x_, alpha_, dy_, own_gradient_;
  std::vector<std::vector<bf16>> stored_;
};

std::vector<DepthPattern> Patterns(int depth) {
  std::vector<std::string> specs = {"1x1", "2x1", "4x1", "12x1", "last:2", "last:9", "final"};
  for (const auto& [spec, period] : {std::pair("3x2", 2), {"4x3", 3}, {"4x5", 5}}) {
    if (period <= depth) specs.push_back(spec);
  }
  for (int period : {2, 3}) {
    if (depth % period == 0) specs.push_back("grouped:2x" + std::to_string(period));
  }
  // Every other module, each with X_0, itself and whatever a hash picks.
  std::string mask = "mask:";
  for (int i = 1; i <= depth; ++i) {
    for (int j = 0; j <= i; ++j) {
      const bool on = i % 2 == 1 && (j == 0 || j == i || Philox(5, i, j)[0] % 3 == 0);
      mask += on ? '1' : '0';
    }
    if (i < depth) mask += '/';
  }
  specs.push_back(mask);
  std::vector<DepthPattern> patterns = {DepthPattern(depth)};
  for (const std::string& spec : specs) patterns.push_back(DepthPattern::Parse(spec, depth));
  return patterns;
}

constexpr int kDepths[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 48};

class DwaTest : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(History, DwaTest, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return DTypeName(info.param); });

TEST_P(DwaTest, EqualsTheFormulaForEveryPattern) {
  for (int depth : kDepths) {
    for (const DepthPattern& pattern : Patterns(depth)) {
      SCOPED_TRACE(pattern.ToString() + " at depth " + std::to_string(depth));
      Problem problem(pattern, 3, 91, GetParam());
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
      Problem problem(DepthPattern::Parse(spec, 13), rows, cols, GetParam());
      problem.ExpectForward(problem.Forward());
      problem.ExpectBackward(problem.Backward());
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(DwaTest, SameBitsForAnyNumberOfThreads) {
  const int before = NumThreads();
  for (const char* spec : {"1x1", "4x1", "4x5", "final"}) {
    Problem problem(DepthPattern::Parse(spec, 20), 131, 770, GetParam());
    SetNumThreads(1);
    const auto y = problem.Forward();
    const Problem::Gradients gradients = problem.Backward();
    for (int threads : {2, 3}) {
      SetNumThreads(threads);
      EXPECT_EQ(y, problem.Forward()) << spec;
      const Problem::Gradients again = problem.Backward();
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
  Problem problem(DepthPattern::Parse("1x1", 9), 400, 771, GetParam());
  ASSERT_TRUE(StoredPastCache(400 * 771 * 4));
  problem.ExpectForward(problem.Forward());
  SetNumThreads(before);
}

TEST_P(DwaTest, SameBitsThroughAndPastTheCache) {
  constexpr int kSources = 3;
  constexpr int64_t kCount = 333;
  Problem problem(DepthPattern::Parse("1x1", kSources), 1, kCount, GetParam());
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
      Problem problem(DepthPattern::Parse(spec, 25), 3, 259, GetParam());
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
    for (const DepthPattern& pattern : Patterns(13)) {
      SCOPED_TRACE(pattern.ToString() + ", last stage from " + std::to_string(begins.back()));
      Problem problem(pattern, 3, 91, GetParam());
      // Weights of 0 take no part, and neither does a stage without any other weight.
      for (auto& alpha : problem.alpha()) {
        for (size_t k = 0; k + 1 < alpha.size(); k += 4) alpha[k] = 0;
      }
      EXPECT_EQ(problem.Forward(), problem.SplitForward(begins));
      const Problem::Gradients split = problem.SplitBackward(begins);
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
  for (const DepthPattern& pattern : Patterns(12)) {
    SCOPED_TRACE(pattern.ToString());
    Problem problem(pattern, 3, 50, GetParam());
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
    const Problem::Gradients gradients = problem.Backward();
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
  Problem problem(pattern, 2, 40, GetParam());
  problem.x()[2][5] = kInfinity;
  problem.x()[3][6] = kNaN;
  problem.dy()[4][7] = kNaN;
  problem.Store();
  const auto y = problem.Forward();
  const Problem::Gradients gradients = problem.Backward();
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
  Problem problem(DepthPattern::Parse("1x1", 25), 3, 259, GetParam());
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
  Problem problem(DepthPattern::Parse("2x1", 5), 3, 33, GetParam());
  for (auto& alpha : problem.alpha()) std::fill(alpha.begin(), alpha.end(), 0.0f);
  const auto y = problem.Forward();
  for (int i = 1; i <= 5; ++i) EXPECT_EQ(y[i], std::vector<float>(99, 0.0f));
  problem.ExpectBackward(problem.Backward());
}

TEST(DwaTest, TakesGradientsInBf16AndSkipsAbsentOnes) {
  const DepthPattern pattern = DepthPattern::Parse("1x1", 9);
  Problem problem(pattern, 3, 70, DType::kBF16);
  for (auto& dy : problem.dy()) {
    for (float& value : dy) value = static_cast<float>(bf16(value));
  }
  std::fill(problem.dy()[4].begin(), problem.dy()[4].end(), 0.0f);
  const Problem::Gradients full = problem.Backward();
  const Problem::Gradients same = problem.Backward({}, DType::kBF16, /*absent=*/4);
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
