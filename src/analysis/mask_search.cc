#include "analysis/mask_search.h"

#include <cmath>
#include <memory>

#include "analysis/depth_mask.h"
#include "base/error.h"
#include "base/progress.h"
#include "base/signal.h"
#include "base/text.h"
#include "train/train_step.h"

namespace denseformer {
namespace {

// What a method does around each step.
class Method {
 public:
  Method(const Model& model, int64_t steps, const SearchOptions& search)
      : model_(model),
        mask_(model.pattern()),
        steps_(steps),
        search_(search),
        all_(mask_.count()) {}
  virtual ~Method() = default;

  // With the gradients of step `step` (from 0).
  virtual void Look(int64_t /*step*/) {}
  // After its update; `rate` is that of the depth weights.
  virtual void Updated(int64_t step, double rate) = 0;
  virtual int64_t weights() const { return mask_.count(); }
  const DepthMask& mask() const { return mask_; }

 protected:
  // Calls f(i, k, alpha, dalpha) for the weight of each older output that is kept.
  template <class F>
  void ForKept(F f) const {
    for (int i = 1; i <= model_.pattern().depth(); ++i) {
      if (!model_.pattern().has_module(i)) continue;
      float* alpha = model_.tensors().alphas[i].f32();
      const float* dalpha = model_.gradient_tensors().alphas[i].f32();
      for (size_t k = 0; k + 1 < model_.pattern().sources(i).size(); ++k) {
        if (mask_.keeps(i, k)) f(i, k, alpha[k], dalpha[k]);
      }
    }
  }

  const Model& model_;
  DepthMask mask_;
  const int64_t steps_;
  const SearchOptions& search_;
  const int64_t all_;  // weights at first
};

class Penalty final : public Method {
 public:
  using Method::Method;

  void Updated(int64_t step, double rate) override {
    const int64_t last = steps_ * 4 / 5;
    if (step < last) {
      const auto threshold = static_cast<float>(rate * lambda_);
      ForKept([&](int, size_t, float& alpha, float) {
        alpha = std::copysign(std::max(std::abs(alpha) - threshold, 0.0f), alpha);
      });
      const double ahead = 1 - static_cast<double>(step + 1) / static_cast<double>(last);
      const auto wanted = static_cast<double>(search_.weights) +
                          static_cast<double>(all_ - search_.weights) * ahead * ahead * ahead;
      lambda_ *= static_cast<double>(weights()) > wanted ? 1.1 : 0.9;
    }
    if (step + 1 == last) {
      DepthMask::Scores scores = mask_.Zeros();
      ForKept([&](int i, size_t k, float alpha, float) { scores[i][k] = std::abs(alpha); });
      mask_.KeepLargest(scores, search_.weights);
    }
    mask_.Apply(model_);
  }

  // Weights that are not 0 now.
  int64_t weights() const override {
    return mask_.CountIf([&](int i, size_t k) { return model_.tensors().alphas[i].f32()[k] != 0; });
  }

 private:
  double lambda_ = 0.05;
};

class Greedy final : public Method {
 public:
  Greedy(const Model& model, int64_t steps, const SearchOptions& search)
      : Method(model, steps, search), scores_(mask_.Zeros()) {}

  void Look(int64_t) override {
    ForKept([&](int i, size_t k, float alpha, float dalpha) {
      const double change = static_cast<double>(alpha) * static_cast<double>(dalpha);
      scores_[i][k] += change * change;
    });
  }

  void Updated(int64_t step, double) override {
    if (round_ < search_.rounds && step + 1 == steps_ * (round_ + 1) / (search_.rounds + 1)) {
      ++round_;
      const double share = static_cast<double>(search_.weights) / static_cast<double>(all_);
      const double wanted =
          static_cast<double>(all_) * std::pow(share, static_cast<double>(round_) / search_.rounds);
      mask_.KeepLargest(scores_, std::llround(wanted));
      scores_ = mask_.Zeros();
    }
    mask_.Apply(model_);
  }

 private:
  DepthMask::Scores scores_;
  int round_ = 0;
};

struct MethodRow {
  const char* name;
  std::unique_ptr<Method> (*make)(const Model& model, int64_t steps, const SearchOptions& search);
};

template <class M>
std::unique_ptr<Method> Make(const Model& model, int64_t steps, const SearchOptions& search) {
  return std::make_unique<M>(model, steps, search);
}

constexpr MethodRow kMethods[] = {{"penalty", Make<Penalty>}, {"greedy", Make<Greedy>}};

std::unique_ptr<Method> MakeMethod(const Model& model, int64_t steps, const SearchOptions& search) {
  for (const MethodRow& row : kMethods) {
    if (search.method == row.name) return row.make(model, steps, search);
  }
  Throw(ErrorCode::kUsage, "search: got method '{}', expected {}", search.method,
        Join(SearchMethods(), " or "));
}

void CheckSearch(const Model& model, const TrainOptions& options, const SearchOptions& search) {
  if (model.pattern().module_count() == 0 || !model.mixer().plain()) {
    Throw(ErrorCode::kUsage,
          "search: needs a run with static weights of the residual stream (such as --dwa 1x1), got "
          "dwa {}, mixer {}, streams {}",
          model.config().dwa, model.config().mixer, model.config().streams);
  }
  const int64_t all = DepthMask(model.pattern()).count();
  if (search.weights < 2 || search.weights >= all) {
    Throw(ErrorCode::kUsage, "search: got {} weights to keep, expected 2 to {} (the run has {})",
          search.weights, all - 1, all);
  }
  const int64_t least = search.method == "greedy" ? search.rounds + 1 : 5;
  if (options.steps < least) {
    Throw(ErrorCode::kUsage, "search: got {} steps, expected at least {} with method {}",
          options.steps, least, search.method);
  }
}

}  // namespace

std::vector<std::string> SearchMethods() {
  std::vector<std::string> names;
  for (const MethodRow& row : kMethods) names.emplace_back(row.name);
  return names;
}

SearchResult SearchMask(Model& model, const TrainBatches& batches, int64_t first,
                        const TrainOptions& options, const SearchOptions& search) {
  const std::unique_ptr<Method> method = MakeMethod(model, options.steps, search);
  CheckSearch(model, options, search);
  const int64_t sequences = options.pass_sequences(), length = model.config().seq_len;
  Activations activations(model, sequences, length, ModelUse::kTraining, options.recompute);
  TrainStep train(model, activations, options);
  const Schedule schedule = options.MakeSchedule();
  std::vector<int32_t> tokens(static_cast<size_t>(sequences * length)), targets(tokens.size());
  std::vector<SearchPoint> course;
  Progress progress("search", "steps", static_cast<double>(options.steps));
  for (int64_t step = 0; step < options.steps; ++step) {
    ThrowIfInterrupted("search");
    const double rate = schedule.Rate(step);
    const double loss = train.Accumulate(step, [&](int64_t at, int pass) {
      batches.Fill(first + at, {pass * sequences, sequences}, tokens.data(), targets.data());
      return Batch{tokens, targets, sequences, length};
    });
    method->Look(step);
    if (!train.Update(step, rate, loss).updated) {
      Throw(ErrorCode::kNonFinite,
            "search: loss or gradient not finite at step {} (loss {}); give a lower --lr", step + 1,
            loss);
    }
    method->Updated(step, rate * options.mixer_lr);
    course.push_back({step + 1, method->weights(), loss});
    progress.Update(static_cast<double>(step + 1),
                    fmt::format("loss {:.3f}, {} weights", loss, course.back().weights));
  }
  return {method->mask().Pattern(), std::move(course)};
}

}  // namespace denseformer
