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

// The index of `depth` within the ascending sources, or -1.
int IndexOf(const std::vector<int>& sources, int depth) {
  const auto at = std::lower_bound(sources.begin(), sources.end(), depth);
  return at != sources.end() && *at == depth ? static_cast<int>(at - sources.begin()) : -1;
}

// How many of the ascending sources are below `bound`.
size_t LowerIndex(const std::vector<int>& sources, int bound) {
  return static_cast<size_t>(std::lower_bound(sources.begin(), sources.end(), bound) -
                             sources.begin());
}

// How many of the readers, ascending by depth, stand before module `bound`.
int LowerReader(const std::vector<DepthPattern::Reader>& readers, int bound) {
  const auto at =
      std::lower_bound(readers.begin(), readers.end(), bound,
                       [](const DepthPattern::Reader& r, int depth) { return r.depth < depth; });
  return static_cast<int>(at - readers.begin());
}

}  // namespace

struct DepthAverager::Plan {
  Plan(const DepthPattern& p, int64_t rows, int64_t cols, Arena& arena,
       const AveragerOptions& options);

  float* Slot(int slot) const { return slots.f32() + slot * elements; }
  // Sets `average` up with the sources [begin, end), by index, of the module at `depth` for its sum
  // and those of its followers.
  void PrepareAverage(int depth, size_t begin, size_t end, std::span<const DepthStep::Follower>,
                      std::span<const Tensor> history, int64_t count);
  // Sets `pull` up with the readers [begin, end), by index, of X_depth for its gradient and those
  // of its followers.
  void PreparePull(int depth, int begin, int end, std::span<const DepthStep::Follower> followers,
                   std::span<const Tensor> history, std::span<const Tensor> dy,
                   std::span<const float* const> alphas, std::span<float* const> dalphas,
                   int64_t count);
  void RunPull(int64_t count);

  DepthPattern pattern;
  int64_t elements;
  DepthSchedule forward, backward;
  Tensor slots;  // [slots, elements]: partial sums
  Tensor dots;   // doubles [kDotParts, d + 1, kMostPulls]

  // A partial sum that the pass of a depth starts from.
  struct Import {
    const float* partial = nullptr;  // null: none
    int bound = 0;                   // it covers sources below it, or readers from it on
  };
  std::vector<Import> forward_imports, backward_imports;  // [d + 1]

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
  forward_imports.resize(depths);
  backward_imports.resize(depths);
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

void DepthAverager::Plan::PrepareAverage(int depth, size_t begin, size_t end,
                                         std::span<const DepthStep::Follower> followers,
                                         std::span<const Tensor> history, int64_t count) {
  const std::vector<int>& sources = pattern.sources(depth);
  average = AveragePass();
  // They are read again some blocks later. Backward the same gains nothing.
  average.past = StoredPastCache(elements * static_cast<int64_t>(sizeof(float)));
  int modules[kMostAverages] = {depth};
  for (const DepthStep::Follower& follower : followers) {
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
  for (size_t k = begin; k < end; ++k) {
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

  Plan::Import& import = plan.forward_imports[depth];
  const size_t covered = import.partial != nullptr ? LowerIndex(sources, import.bound)
                                                   : static_cast<size_t>(step.covered);
  plan.PrepareAverage(depth, covered, sources.size() - 1, step.followers, history, count);
  AveragePass& pass = plan.average;
  pass.output[0] = y.f32();
  if (step.slot >= 0 && !plan.slot_empty[step.slot]) pass.partial = plan.Slot(step.slot);
  if (import.partial != nullptr) pass.partial = import.partial;
  import = Plan::Import();
  pass.newest_weight = plan.alphas[depth][sources.size() - 1];
  if (pass.newest_weight != 0) pass.newest = newest.f32();
  if (pass.partial != nullptr || pass.newest != nullptr) pass.empty = false;
}

void DepthAverager::ExportForward(int depth, int begin, int end, std::span<const Tensor> history,
                                  const Tensor& start, const Tensor& partial) {
  Plan& plan = *plan_;
  const std::vector<int>& sources = plan.pattern.sources(depth);
  DF_CHECK(!sources.empty() && end <= depth && plan.alphas[depth] != nullptr);
  const int64_t count = partial.count();
  DF_CHECK(count <= plan.elements);
  plan.PrepareAverage(depth, LowerIndex(sources, begin), LowerIndex(sources, end), {}, history,
                      count);
  AveragePass& pass = plan.average;
  pass.output[0] = partial.f32();
  pass.empty = false;  // -0, so that adding to it changes no bit
  if (!start.empty()) {
    CheckTensor("start", depth, start, count);
    pass.partial = start.f32();
  }
  RunAverage(count);
}

void DepthAverager::ImportForward(int depth, int end, const Tensor& partial) {
  Plan& plan = *plan_;
  DF_CHECK_MSG(plan.forward.slots == 0, "imports need an averager without look-ahead");
  DF_CHECK(plan.pattern.has_module(depth) && end <= depth);
  plan.forward_imports[depth] = {partial.f32(), end};
}

void DepthAverager::RunForward(int64_t begin, int64_t end) const {
  RunAveragePass(plan_->average, begin, end);
}

void DepthAverager::Forward(int depth, const Tensor& newest, std::span<const Tensor> history,
                            const Tensor& y) {
  PrepareForward(depth, newest, history, y);
  RunAverage(newest.count());
}

void DepthAverager::RunAverage(int64_t count) const {
  ParallelFor((count + kTile - 1) / kTile, kGrain / kTile, [&](int64_t begin, int64_t end, int) {
    RunForward(begin * kTile, std::min(end * kTile, count));
    hwy::FlushStream();
  });
}

void DepthAverager::Plan::PreparePull(int depth, int begin, int end,
                                      std::span<const DepthStep::Follower> followers,
                                      std::span<const Tensor> history, std::span<const Tensor> dy,
                                      std::span<const float* const> alphas,
                                      std::span<float* const> dalphas, int64_t count) {
  const std::vector<DepthPattern::Reader>& readers = pattern.readers(depth);
  pull = PullPass();
  int sources[kMostPulls] = {depth};
  for (const DepthStep::Follower& follower : followers) {
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
  // The deepest reader first.
  for (int r = end - 1; r >= begin; --r) {
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
  for (int t = 1; t < pull.targets; ++t) slot_empty[followers[t - 1].slot] = !used[t];
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
  if (plan.pattern.readers(depth).empty()) {
    plan.backward_imports[depth] = Plan::Import();
    return;
  }
  const int64_t count = dx.count();
  DF_CHECK(count <= plan.elements);
  const DepthStep& step = plan.backward.steps[depth];
  Plan::Import& import = plan.backward_imports[depth];
  const std::vector<DepthPattern::Reader>& readers = plan.pattern.readers(depth);
  const int end = import.partial != nullptr ? LowerReader(readers, import.bound)
                                            : static_cast<int>(readers.size()) - step.covered;
  plan.PreparePull(depth, 0, end, step.followers, history, dy, alphas, dalphas, count);
  PullPass& pass = plan.pull;
  pass.output[0] = dx.f32();
  pass.add = !plan.pattern.has_module(depth);
  if (step.slot >= 0 && !plan.slot_empty[step.slot]) {
    pass.partial = plan.Slot(step.slot);
    pass.empty = false;
  }
  if (import.partial != nullptr) {
    pass.partial = import.partial;
    pass.empty = false;
    import = Plan::Import();
  }
  plan.RunPull(count);
}

void DepthAverager::ExportBackward(int depth, int begin, int end, std::span<const Tensor> history,
                                   std::span<const Tensor> dy, std::span<const float* const> alphas,
                                   std::span<float* const> dalphas, const Tensor& start,
                                   const Tensor& partial) {
  Plan& plan = *plan_;
  const std::vector<DepthPattern::Reader>& readers = plan.pattern.readers(depth);
  const int64_t count = partial.count();
  DF_CHECK(count <= plan.elements);
  plan.PreparePull(depth, LowerReader(readers, begin), LowerReader(readers, end), {}, history, dy,
                   alphas, dalphas, count);
  PullPass& pass = plan.pull;
  pass.output[0] = partial.f32();
  pass.empty = false;  // -0, so that adding to it changes no bit
  if (!start.empty()) {
    CheckTensor("start", depth, start, count);
    pass.partial = start.f32();
  }
  plan.RunPull(count);
}

void DepthAverager::ImportBackward(int depth, int begin, const Tensor& partial) {
  Plan& plan = *plan_;
  DF_CHECK_MSG(plan.backward.slots == 0, "imports need an averager without look-ahead");
  plan.backward_imports[depth] = {partial.f32(), begin};
}

void DepthAverager::Plan::RunPull(int64_t count) {
  double* lane_dots = static_cast<double*>(dots.raw());
  const int64_t pair_count = static_cast<int64_t>(pairs.size());
  const int64_t tiles = (count + kTile - 1) / kTile;
  const int64_t parts = std::clamp<int64_t>(count / kGrain, 1, kDotParts);
  ParallelFor(parts, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t from = tiles * part / parts * kTile;
      const int64_t to = std::min(tiles * (part + 1) / parts * kTile, count);
      RunPullPass(pull, from, to, lane_dots + part * pair_count);
    }
  });
  for (int64_t pair = 0; pair < pair_count; ++pair) {
    if (pair_gradients[pair] == nullptr) continue;
    double sum = 0;
    for (int64_t part = 0; part < parts; ++part) sum += lane_dots[part * pair_count + pair];
    *pair_gradients[pair] += static_cast<float>(sum);
  }
}

}  // namespace denseformer
