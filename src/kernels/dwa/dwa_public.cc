// include/denseformer/dwa.h on top of DepthAverager: owns the weights and the scratch memory, and
// checks what the caller does.
#include <algorithm>
#include <vector>

#include "base/error.h"
#include "denseformer/dwa.h"
#include "kernels/convert.h"
#include "kernels/dwa/dwa.h"

namespace denseformer {
namespace {

template <class... Args>
[[noreturn]] void Wrong(fmt::format_string<Args...> format, Args&&... args) {
  Throw(ErrorCode::kUsage, "depth-weighted average: {}",
        fmt::format(format, std::forward<Args>(args)...));
}

size_t ScratchBytes(const DepthPattern& pattern, int64_t rows, int64_t width) {
  if (rows < 1 || width < 1) Wrong("{} rows of {} elements, expected at least 1 x 1", rows, width);
  Arena measure;
  DepthAverager(pattern, rows, width, measure);
  return measure.peak();
}

}  // namespace

struct DepthWeightedAverage::State {
  State(const DepthPattern& p, int64_t max_rows_, int64_t width_, HistoryType type)
      : pattern(p),
        max_rows(max_rows_),
        width(width_),
        dtype(type == HistoryType::kFloat32 ? DType::kF32 : DType::kBF16),
        arena(ScratchBytes(p, max_rows, width)),
        averager(p, max_rows, width, arena),
        first(p.depth() + 2, 0),
        alphas(p.depth() + 1),
        dalphas(p.depth() + 1),
        history(p.depth() + 1),
        dy(p.depth() + 1) {
    weights.resize(p.weight_count());
    gradients.resize(p.weight_count());
    for (int i = 0; i <= p.depth(); ++i) {
      first[i + 1] = first[i] + p.sources(i).size();
      if (!p.has_module(i)) continue;
      alphas[i] = weights.data() + first[i];
      dalphas[i] = gradients.data() + first[i];
      weights[first[i + 1] - 1] = 1;
    }
  }

  void CheckDepth(int i) const {
    if (i < 0 || i > pattern.depth()) Wrong("depth {}, expected 0 to {}", i, pattern.depth());
  }
  Tensor Matrix(const float* data, const char* what, int i) const {
    if (data == nullptr) Wrong("{} of depth {} is null", what, i);
    return Tensor(const_cast<float*>(data), {rows, width});
  }
  void SetHistory(const void* const* pointers, int j) {
    if (pointers[j] == nullptr) Wrong("history of depth {} is null", j);
    history[j] = Tensor(const_cast<void*>(pointers[j]), dtype, {rows, width});
  }

  DepthPattern pattern;
  int64_t max_rows, width, rows = 0;
  DType dtype;
  Arena arena;
  DepthAverager averager;
  std::vector<float> weights, gradients;
  std::vector<size_t> first;  // [d + 2]: of the weights of depth i
  std::vector<const float*> alphas;
  std::vector<float*> dalphas;
  std::vector<Tensor> history, dy;
  int done = -1;      // the last module of the forward pass
  int next_back = 0;  // the next depth of the backward pass
};

DepthWeightedAverage::DepthWeightedAverage(const DepthPattern& pattern, int64_t max_rows,
                                           int64_t width, HistoryType history)
    : state_(std::make_unique<State>(pattern, max_rows, width, history)) {}
DepthWeightedAverage::~DepthWeightedAverage() = default;
DepthWeightedAverage::DepthWeightedAverage(DepthWeightedAverage&&) noexcept = default;
DepthWeightedAverage& DepthWeightedAverage::operator=(DepthWeightedAverage&&) noexcept = default;

const DepthPattern& DepthWeightedAverage::pattern() const { return state_->pattern; }
size_t DepthWeightedAverage::scratch_bytes() const { return state_->arena.used(); }

std::span<float> DepthWeightedAverage::weights(int i) {
  state_->CheckDepth(i);
  return std::span(state_->weights).subspan(state_->first[i], state_->pattern.sources(i).size());
}

std::span<const float> DepthWeightedAverage::weights(int i) const {
  return const_cast<DepthWeightedAverage*>(this)->weights(i);
}

std::span<float> DepthWeightedAverage::weight_gradients(int i) {
  state_->CheckDepth(i);
  return std::span(state_->gradients).subspan(state_->first[i], state_->pattern.sources(i).size());
}

void DepthWeightedAverage::Start(int64_t rows) {
  State& s = *state_;
  if (rows < 1 || rows > s.max_rows) Wrong("{} rows, expected 1 to {}", rows, s.max_rows);
  s.rows = rows;
  s.done = -1;
  s.next_back = s.pattern.depth();
  s.averager.StartForward(s.alphas);
}

void DepthWeightedAverage::Forward(int i, const float* newest, const void* const* history,
                                   float* y) {
  State& s = *state_;
  s.CheckDepth(i);
  if (s.rows == 0) Wrong("Forward before Start");
  if (!s.pattern.has_module(i)) {
    Wrong("pattern {} has no module after block {}", s.pattern.ToString(), i);
  }
  for (int j = s.done + 1; j < i; ++j) {
    if (s.pattern.has_module(j)) Wrong("Forward of module {} before that of module {}", i, j);
  }
  if (i <= s.done) Wrong("Forward of module {} after that of module {}", i, s.done);
  const Tensor x = s.Matrix(newest, "newest", i), out = s.Matrix(y, "y", i);
  const std::vector<int>& sources = s.pattern.sources(i);
  for (size_t k = 0; k + 1 < sources.size(); ++k) s.SetHistory(history, sources[k]);
  s.averager.Forward(i, x, s.history, out);
  s.done = i;
}

void DepthWeightedAverage::Backward(int j, const void* const* history, const float* const* dy,
                                    float* dx) {
  State& s = *state_;
  s.CheckDepth(j);
  if (s.rows == 0) Wrong("Backward before Start");
  if (j != s.next_back) Wrong("Backward of depth {}, expected {}", j, s.next_back);
  const Tensor to = s.Matrix(dx, "dx", j);
  for (int k = 0; k <= j; ++k) {
    if (!s.pattern.readers(k).empty()) s.SetHistory(history, k);
  }
  for (const DepthPattern::Reader& reader : s.pattern.readers(j)) {
    s.dy[reader.depth] = s.Matrix(dy[reader.depth], "dy", reader.depth);
  }
  s.averager.Backward(j, s.history, s.dy, s.alphas, s.dalphas, to);
  s.next_back = j - 1;
}

void DepthWeightedAverage::Store(const float* x, int64_t n, void* history) const {
  if (n < 0 || x == nullptr || history == nullptr) Wrong("Store of {} elements from or to null", n);
  Convert(Tensor(const_cast<float*>(x), {n}), Tensor(history, state_->dtype, {n}));
}

}  // namespace denseformer
