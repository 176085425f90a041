#include "kernels/dwa.h"

#include <algorithm>

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/dwa_passes.h"

namespace denseformer {
namespace {

// A range shorter than this is not worth a thread of its own.
constexpr int64_t kGrain = 16 * 1024;

void CheckSameSize(const Tensor& tensor, int64_t count) {
  DF_CHECK_MSG(!tensor.empty() && tensor.count() == count, "got {}, expected {} elements",
               tensor.shape().ToString(), count);
}

}  // namespace

struct DepthAverager::Plan {
  DepthPattern pattern;
  int64_t rows, cols;
  std::vector<const float*> alphas{};  // of the forward pass under way
  std::vector<AverageTerm> terms{};
  Tensor partial_dots{};  // doubles [kDotPartitions, d + 1]
};

DepthAverager::DepthAverager(const DepthPattern& pattern, int64_t rows, int64_t cols, Arena& arena)
    : plan_(new Plan{.pattern = pattern, .rows = rows, .cols = cols}) {
  plan_->terms.reserve(pattern.depth() + 1);
  plan_->alphas.reserve(pattern.depth() + 1);
  plan_->partial_dots =
      arena.Allocate(DType::kF32, {kDotPartitions, 2 * (int64_t{pattern.depth()} + 1)});
}

DepthAverager::~DepthAverager() = default;
DepthAverager::DepthAverager(DepthAverager&&) noexcept = default;

void DepthAverager::StartForward(std::span<const float* const> alphas) {
  DF_CHECK(alphas.size() == static_cast<size_t>(plan_->pattern.depth()) + 1);
  plan_->alphas.assign(alphas.begin(), alphas.end());
}

void DepthAverager::Forward(int depth, const Tensor& newest, std::span<const Tensor> history,
                            const Tensor& y) {
  const std::vector<int>& sources = plan_->pattern.sources(depth);
  const float* alpha = plan_->alphas[depth];
  DF_CHECK(!sources.empty() && sources.back() == depth && alpha != nullptr);
  const int64_t count = newest.count();
  DF_CHECK(count <= plan_->rows * plan_->cols);
  CheckSameSize(y, count);

  std::vector<AverageTerm>& terms = plan_->terms;
  terms.clear();
  for (size_t k = 0; k + 1 < sources.size(); ++k) {
    if (alpha[k] == 0) continue;
    const Tensor& source = history[sources[k]];
    CheckSameSize(source, count);
    terms.push_back({source.raw(), source.dtype(), alpha[k]});
  }
  if (alpha[sources.size() - 1] != 0) {
    terms.push_back({newest.raw(), DType::kF32, alpha[sources.size() - 1]});
  }
  ParallelFor((count + kAverageTile - 1) / kAverageTile, kGrain / kAverageTile,
              [&](int64_t begin, int64_t end, int) {
                AverageRange(terms, begin * kAverageTile, std::min(end * kAverageTile, count),
                             y.f32());
              });
}

void DepthAverager::Backward(int depth, std::span<const Tensor> history, std::span<const Tensor> dy,
                             std::span<const float* const> alphas, std::span<float* const> dalphas,
                             const Tensor& dx) {
  const std::vector<DepthPattern::Reader>& readers = plan_->pattern.readers(depth);
  if (readers.empty()) return;
  const int64_t count = dx.count();
  DF_CHECK(count <= plan_->rows * plan_->cols);

  // The deepest reader first.
  std::vector<AverageTerm>& terms = plan_->terms;
  terms.clear();
  for (auto reader = readers.rbegin(); reader != readers.rend(); ++reader) {
    CheckSameSize(dy[reader->depth], count);
    terms.push_back({dy[reader->depth].raw(), DType::kF32, alphas[reader->depth][reader->index]});
  }
  const Tensor& x = history[depth];
  CheckSameSize(x, count);
  double* partial = static_cast<double*>(plan_->partial_dots.raw());
  const int64_t n_terms = static_cast<int64_t>(terms.size());
  const int64_t tiles = (count + kAverageTile - 1) / kAverageTile;
  const bool add = !plan_->pattern.has_module(depth);
  ParallelFor(
      kDotPartitions, std::max<int64_t>(1, kGrain * kDotPartitions / std::max<int64_t>(1, count)),
      [&](int64_t begin, int64_t end, int) {
        for (int64_t p = begin; p < end; ++p) {
          const int64_t from = tiles * p / kDotPartitions * kAverageTile;
          const int64_t to = std::min(tiles * (p + 1) / kDotPartitions * kAverageTile, count);
          PullRange(terms, x, from, to, add, dx.f32(), partial + p * n_terms);
        }
      });
  for (int64_t k = 0; k < n_terms; ++k) {
    const DepthPattern::Reader& reader = readers[n_terms - 1 - k];
    if (dalphas[reader.depth] == nullptr) continue;
    double sum = 0;
    for (int64_t p = 0; p < kDotPartitions; ++p) sum += partial[p * n_terms + k];
    dalphas[reader.depth][reader.index] += static_cast<float>(sum);
  }
}

}  // namespace denseformer
