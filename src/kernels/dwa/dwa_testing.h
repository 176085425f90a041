// Depth-weighted averages of random histories, for tests: by the kernels of one process or of
// several stages, and by the formula in double precision. No part of the library.
#ifndef DENSEFORMER_KERNELS_DWA_DWA_TESTING_H_
#define DENSEFORMER_KERNELS_DWA_DWA_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "kernels/dwa/dwa.h"

namespace denseformer {

// A model's history, weights and gradients, and its averages.
class DwaProblem {
 public:
  DwaProblem(const DepthPattern& pattern, int64_t rows, int64_t cols, DType dtype,
             uint64_t seed = 1)
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

// Every form of pattern, and a mask.
inline std::vector<DepthPattern> DwaPatterns(int depth) {
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

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_DWA_DWA_TESTING_H_
