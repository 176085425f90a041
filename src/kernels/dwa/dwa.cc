#include "kernels/dwa/dwa.h"

#include <hwy/cache_control.h>

#include <algorithm>

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/dwa/dwa_passes.h"
#include "kernels/stream.h"

namespace denseformer {
namespace {

// Ranges of threads begin at multiples of this: whole cache lines, whole tiles.
constexpr int64_t kTile = 256;
// A range shorter than this is not worth a thread of its own.
constexpr int64_t kGrain = 16 * 1024;
// Dot products are summed over this many fixed parts of the elements, then over the parts in
// order.
constexpr int64_t kDotParts = 64;

void CheckTensor(const char* name, int depth, const Tensor& tensor, int64_t count) {
  DF_CHECK_MSG(!tensor.empty() && tensor.count() == count, "{} {} is {}, expected {} elements",
               name, depth, tensor.empty() ? "empty" : tensor.shape().ToString(), count);
}

// The place of `depth` within the ascending sources, or -1.
int IndexOf(const std::vector<int>& sources, int depth) {
  const auto at = std::lower_bound(sources.begin(), sources.end(), depth);
  return at != sources.end() && *at == depth ? static_cast<int>(at - sources.begin()) : -1;
}

}  // namespace

struct DepthAverager::Plan {
  Plan(const DepthPattern& p, int64_t rows, int64_t cols, Arena& arena,
       const AveragerOptions& options);

  float* Slot(int slot) const { return slots.f32() + slot * elements; }
  void PrepareAverage(int depth, std::span<const Tensor> history, int64_t count);
  void PreparePull(int depth, std::span<const Tensor> history, std::span<const Tensor> dy,
                   std::span<const float* const> alphas, std::span<float* const> dalphas,
                   int64_t count);

  DepthPattern pattern;
  int64_t elements;
  DepthSchedule forward, backward;
  Tensor slots;  // [slots, elements]: partial sums
  Tensor dots;   // doubles [kDotParts, d + 1, kMostPulls]

  // Of the pass under way.
  std::vector<const float*> alphas;  // forward
  std::vector<bool> slot_empty;      // nothing took part in this partial sum
  std::vector<const void*> terms;
  std::vector<float> weights;          // [terms, kMostAverages]
  std::vector<uint8_t> skipped;        // [terms]
  std::vector<const void*> gradients;  // dY_i
  std::vector<PullPair> pairs;         // [gradients, kMostPulls]
  std::vector<float*> pair_gradients;  // [gradients, kMostPulls]: where the dot product goes
  AveragePass average;
  PullPass pull;
};

DepthAverager::Plan::Plan(const DepthPattern& p, int64_t rows, int64_t cols, Arena& arena,
                          const AveragerOptions& options)
    : pattern(p),
      elements((rows * cols + kTile - 1) / kTile * kTile),
      forward(ScheduleForward(p, options.forward)),
      backward(ScheduleBackward(p, options.backward)) {
  DF_CHECK(options.forward.group <= kMostAverages && options.backward.group <= kMostPulls);
  const int64_t depths = p.depth() + 1;
  const int count = std::max(forward.slots, backward.slots);
  slots = arena.Allocate(DType::kF32, {count, elements});
  dots = arena.Allocate(DType::kF32, {kDotParts, depths, kMostPulls, 2});
  alphas.resize(depths);
  slot_empty.resize(count);
  terms.reserve(depths);
  weights.reserve(depths * kMostAverages);
  skipped.reserve(depths);
  gradients.reserve(depths);
  pairs.reserve(depths * kMostPulls);
  pair_gradients.reserve(depths * kMostPulls);
}

DepthAverager::DepthAverager(const DepthPattern& pattern, int64_t rows, int64_t cols, Arena& arena,
                             const AveragerOptions& options)
    : plan_(std::make_unique<Plan>(pattern, rows, cols, arena, options)) {}
DepthAverager::~DepthAverager() = default;
DepthAverager::DepthAverager(DepthAverager&&) noexcept = default;

void DepthAverager::StartForward(std::span<const float* const> alphas) {
  DF_CHECK(alphas.size() == plan_->alphas.size());
  plan_->alphas.assign(alphas.begin(), alphas.end());
}

// Sets `average` up with what the module at `depth` and its followers add up from the history.
void DepthAverager::Plan::PrepareAverage(int depth, std::span<const Tensor> history,
                                         int64_t count) {
  const DepthStep& step = forward.steps[depth];
  const std::vector<int>& sources = pattern.sources(depth);
  average = AveragePass();
  // They are read again some blocks later. Backward the same gains nothing.
  average.past = StoredPastCache(elements * static_cast<int64_t>(sizeof(float)));
  int modules[kMostAverages] = {depth};
  for (const DepthStep::Follower& follower : step.followers) {
    const float* alpha = alphas[follower.depth];
    const int covered = forward.steps[follower.depth].covered;
    slot_empty[follower.slot] = std::all_of(alpha, alpha + covered, [](float w) { return w == 0; });
    if (slot_empty[follower.slot]) continue;
    average.output[average.outputs] = Slot(follower.slot);
    modules[average.outputs++] = follower.depth;
  }
  terms.clear();
  weights.clear();
  skipped.clear();
  average.empty = true;
  for (size_t k = step.covered; k + 1 < sources.size(); ++k) {
    float row[kMostAverages] = {};
    uint8_t zeros = 0;
    for (int o = 0; o < average.outputs; ++o) {
      const int index = IndexOf(pattern.sources(modules[o]), sources[k]);
      if (index >= 0) row[o] = alphas[modules[o]][index];
      if (row[o] == 0) zeros |= static_cast<uint8_t>(1 << o);
    }
    if (zeros + 1 == 1 << average.outputs) continue;
    if (row[0] != 0) average.empty = false;
    const Tensor& x = history[sources[k]];
    CheckTensor("history", sources[k], x, count);
    DF_CHECK_MSG(terms.empty() || x.dtype() == average.dtype, "history of mixed types");
    average.dtype = x.dtype();
    terms.push_back(x.raw());
    weights.insert(weights.end(), row, row + kMostAverages);
    skipped.push_back(zeros);
  }
  average.sources = static_cast<int>(terms.size());
  average.source = terms.data();
  average.weights = weights.data();
  average.skipped = skipped.data();
}

void DepthAverager::PrepareForward(int depth, const Tensor& newest, std::span<const Tensor> history,
                                   const Tensor& y) {
  Plan& plan = *plan_;
  const DepthStep& step = plan.forward.steps[depth];
  const std::vector<int>& sources = plan.pattern.sources(depth);
  DF_CHECK(!sources.empty() && sources.back() == depth && plan.alphas[depth] != nullptr);
  const int64_t count = newest.count();
  DF_CHECK(count <= plan.elements);
  CheckTensor("y", depth, y, count);

  plan.PrepareAverage(depth, history, count);
  AveragePass& pass = plan.average;
  pass.output[0] = y.f32();
  if (step.slot >= 0 && !plan.slot_empty[step.slot]) pass.partial = plan.Slot(step.slot);
  pass.newest_weight = plan.alphas[depth][sources.size() - 1];
  if (pass.newest_weight != 0) pass.newest = newest.f32();
  if (pass.partial != nullptr || pass.newest != nullptr) pass.empty = false;
}

void DepthAverager::RunForward(int64_t begin, int64_t end) const {
  RunAveragePass(plan_->average, begin, end);
}

void DepthAverager::Forward(int depth, const Tensor& newest, std::span<const Tensor> history,
                            const Tensor& y) {
  PrepareForward(depth, newest, history, y);
  const int64_t count = newest.count();
  ParallelFor((count + kTile - 1) / kTile, kGrain / kTile, [&](int64_t begin, int64_t end, int) {
    RunForward(begin * kTile, std::min(end * kTile, count));
    hwy::FlushStream();
  });
}

// Sets `pull` up with what the gradients of X_depth and of its followers take from the modules.
void DepthAverager::Plan::PreparePull(int depth, std::span<const Tensor> history,
                                      std::span<const Tensor> dy,
                                      std::span<const float* const> alphas,
                                      std::span<float* const> dalphas, int64_t count) {
  const DepthStep& step = backward.steps[depth];
  const std::vector<DepthPattern::Reader>& readers = pattern.readers(depth);
  pull = PullPass();
  int sources[kMostPulls] = {depth};
  for (const DepthStep::Follower& follower : step.followers) {
    pull.output[pull.targets] = Slot(follower.slot);
    sources[pull.targets++] = follower.depth;
  }
  pull.dtype = history[depth].dtype();
  for (int t = 0; t < pull.targets; ++t) {
    const Tensor& x = history[sources[t]];
    CheckTensor("history", sources[t], x, count);
    DF_CHECK_MSG(x.dtype() == pull.dtype, "history of mixed types");
    pull.x[t] = x.raw();
  }
  gradients.clear();
  pairs.clear();
  pair_gradients.clear();
  bool used[kMostPulls] = {};
  // The deepest reader first; those that `covered` counts are in the partial sum.
  for (int r = static_cast<int>(readers.size()) - 1 - step.covered; r >= 0; --r) {
    const int module = readers[r].depth;
    if (dy[module].empty()) continue;
    bool needed = false;
    for (int t = 0; t < kMostPulls; ++t) {
      const int index = t < pull.targets ? IndexOf(pattern.sources(module), sources[t]) : -1;
      PullPair pair;
      if (index >= 0) {
        pair.weight = alphas[module][index];
        pair.sum = pair.weight != 0;
        pair.dot = dalphas[module] != nullptr;
        used[t] = used[t] || pair.sum;
        needed = needed || pair.sum || pair.dot;
      }
      pairs.push_back(pair);
      pair_gradients.push_back(pair.dot ? dalphas[module] + index : nullptr);
    }
    if (!needed) {
      pairs.resize(pairs.size() - kMostPulls);
      pair_gradients.resize(pair_gradients.size() - kMostPulls);
      continue;
    }
    CheckTensor("dy", module, dy[module], count);
    DF_CHECK_MSG(gradients.empty() || dy[module].dtype() == pull.dy_dtype, "dy of mixed types");
    pull.dy_dtype = dy[module].dtype();
    gradients.push_back(dy[module].raw());
  }
  for (int t = 1; t < pull.targets; ++t) slot_empty[step.followers[t - 1].slot] = !used[t];
  DF_CHECK(pull.dy_dtype == DType::kF32 || pull.dtype == DType::kBF16);
  pull.empty = !used[0];
  pull.modules = static_cast<int>(gradients.size());
  pull.dy = gradients.data();
  pull.pairs = pairs.data();
}

void DepthAverager::Backward(int depth, std::span<const Tensor> history, std::span<const Tensor> dy,
                             std::span<const float* const> alphas, std::span<float* const> dalphas,
                             const Tensor& dx) {
  Plan& plan = *plan_;
  if (plan.pattern.readers(depth).empty()) return;
  const int64_t count = dx.count();
  DF_CHECK(count <= plan.elements);
  plan.PreparePull(depth, history, dy, alphas, dalphas, count);
  PullPass& pass = plan.pull;
  const DepthStep& step = plan.backward.steps[depth];
  pass.output[0] = dx.f32();
  pass.add = !plan.pattern.has_module(depth);
  if (step.slot >= 0 && !plan.slot_empty[step.slot]) {
    pass.partial = plan.Slot(step.slot);
    pass.empty = false;
  }

  double* dots = static_cast<double*>(plan.dots.raw());
  const int64_t pairs = static_cast<int64_t>(plan.pairs.size());
  const int64_t tiles = (count + kTile - 1) / kTile;
  const int64_t parts = std::clamp<int64_t>(count / kGrain, 1, kDotParts);
  ParallelFor(parts, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t from = tiles * part / parts * kTile;
      const int64_t to = std::min(tiles * (part + 1) / parts * kTile, count);
      RunPullPass(pass, from, to, dots + part * pairs);
    }
  });
  for (int64_t pair = 0; pair < pairs; ++pair) {
    if (plan.pair_gradients[pair] == nullptr) continue;
    double sum = 0;
    for (int64_t part = 0; part < parts; ++part) sum += dots[part * pairs + pair];
    *plan.pair_gradients[pair] += static_cast<float>(sum);
  }
}

}  // namespace denseformer
