// Softmax cross-entropy. A row is read in blocks that fit the first cache: the largest value of a
// block, then its exponentials; what was summed before is scaled down where the block has a new
// largest value. So one pass over memory gives log-sum-exp, and a second the gradient.
//
// exp(x - largest) rather than exp(x - logsumexp): the difference is exact near the largest value,
// where a rounded log-sum-exp of large logits would not be.
#include "kernels/cross_entropy.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cross_entropy.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/parallel.h"
#include "kernels/exp2-inl.h"
#include "kernels/simd.h"
#include "kernels/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

struct SoftmaxSum {
  float largest;
  double sum;  // of exp(x - largest)
};

template <class T>
HWY_INLINE float LargestOf(const T* x, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto most0 = lowest, most1 = lowest, most2 = lowest, most3 = lowest;
  int64_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    most0 = hn::Max(most0, LoadF32(d, x + i));
    most1 = hn::Max(most1, LoadF32(d, x + i + step));
    most2 = hn::Max(most2, LoadF32(d, x + i + 2 * step));
    most3 = hn::Max(most3, LoadF32(d, x + i + 3 * step));
  }
  for (; i + step <= n; i += step) most0 = hn::Max(most0, LoadF32(d, x + i));
  if (i < n) {
    const Part part{static_cast<size_t>(n - i)};
    const auto rest = LoadLanes(d, x + i, part);
    most1 = hn::Max(most1, hn::IfThenElse(hn::FirstN(d, part.count), rest, lowest));
  }
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(most0, most1), hn::Max(most2, most3))));
}

// A NaN may be lost in the comparisons but not in the sum.
template <class T>
HWY_INLINE SoftmaxSum SumRow(const T* x, int64_t n) {
  constexpr int64_t kBlock = 2048;
  const hn::ScalableTag<float> d;
  SoftmaxSum total{-std::numeric_limits<float>::infinity(), 0};
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t count = std::min(kBlock, n - at);
    const float largest = std::max(total.largest, LargestOf(x + at, count));
    const auto shift = hn::Set(d, largest);
    const float sum = SumLanes(d, SumVectors(d, count, [&](int64_t i, auto lanes) HWY_ATTR {
                                 return ExpOfNegative</*kPrecise=*/true>(
                                     d, hn::Sub(shift, LoadLanes(d, x + at + i, lanes)));
                               }));
    if (total.sum != 0) {
      total.sum *= std::exp(static_cast<double>(total.largest) - static_cast<double>(largest));
    }
    total.sum += static_cast<double>(sum);
    total.largest = largest;
  }
  return total;
}

HWY_INLINE float LossOf(const SoftmaxSum& total, float target) {
  return static_cast<float>(static_cast<double>(total.largest) - static_cast<double>(target) +
                            std::log(total.sum));
}

// Whether the target's logit is the largest, and the first of equals.
template <class T>
HWY_INLINE bool IsCorrect(const SoftmaxSum& total, const T* x, int64_t target) {
  if (std::isnan(total.sum) || static_cast<float>(x[target]) != total.largest) return false;
  for (int64_t i = 0; i < target; ++i) {
    if (static_cast<float>(x[i]) == total.largest) return false;
  }
  return true;
}

// dlogits = exp(x - largest) * factor, less `scale` at the target. May be in place.
template <class T, class G>
HWY_INLINE void GradRow(const T* x, const SoftmaxSum& total, int64_t target, float scale, G* out,
                        int64_t n) {
  const hn::ScalableTag<float> d;
  const auto shift = hn::Set(d, total.largest);
  const auto factor = hn::Set(d, static_cast<float>(scale / total.sum));
  const float logit = static_cast<float>(x[target]);
  ForEachVector(d, n, [&](int64_t i, auto lanes) HWY_ATTR {
    const auto p =
        ExpOfNegative<std::is_same_v<G, float>>(d, hn::Sub(shift, LoadLanes(d, x + i, lanes)));
    StoreLanes(d, hn::Mul(p, factor), out + i, lanes);
  });
  // Near certainty 1 - p is what matters: in fp64, where it does not cancel to 0 so soon.
  const double p =
      std::exp(static_cast<double>(logit) - static_cast<double>(total.largest)) / total.sum;
  out[target] = static_cast<G>(static_cast<float>((p - 1) * scale));
}

template <class T>
void LossRows(const Tensor& logits, std::span<const int32_t> targets, std::span<float> losses,
              std::span<uint8_t> correct, int64_t begin, int64_t end) {
  const int64_t cols = logits.cols();
  for (int64_t n = begin; n < end; ++n) {
    const bool ignored = targets[n] == kIgnoreTarget;
    if (ignored) losses[n] = 0;
    if (ignored && !correct.empty()) correct[n] = 0;
    if (ignored) continue;
    const T* x = logits.As<T>() + n * cols;
    const SoftmaxSum total = SumRow(x, cols);
    losses[n] = LossOf(total, static_cast<float>(x[targets[n]]));
    if (!correct.empty()) correct[n] = IsCorrect(total, x, targets[n]) ? 1 : 0;
  }
}

template <class T, class G>
void GradRows(const Tensor& logits, std::span<const int32_t> targets, float scale,
              std::span<float> losses, const Tensor& dlogits, int64_t begin, int64_t end) {
  const int64_t cols = logits.cols();
  for (int64_t n = begin; n < end; ++n) {
    G* out = dlogits.As<G>() + n * cols;
    if (targets[n] == kIgnoreTarget) {
      losses[n] = 0;
      std::fill_n(out, cols, G{});
      continue;
    }
    const T* x = logits.As<T>() + n * cols;
    const SoftmaxSum total = SumRow(x, cols);
    losses[n] = LossOf(total, static_cast<float>(x[targets[n]]));
    GradRow(x, total, targets[n], scale, out, cols);
  }
}

void LossRange(const Tensor& logits, std::span<const int32_t> targets, std::span<float> losses,
               std::span<uint8_t> correct, int64_t begin, int64_t end) {
  if (logits.dtype() == DType::kF32) {
    LossRows<float>(logits, targets, losses, correct, begin, end);
  } else {
    LossRows<bf16>(logits, targets, losses, correct, begin, end);
  }
}

void GradRange(const Tensor& logits, std::span<const int32_t> targets, float scale,
               std::span<float> losses, const Tensor& dlogits, int64_t begin, int64_t end) {
  const bool to_f32 = dlogits.dtype() == DType::kF32;
  if (logits.dtype() == DType::kF32) {
    (to_f32 ? GradRows<float, float> : GradRows<float, bf16>)(logits, targets, scale, losses,
                                                              dlogits, begin, end);
  } else {
    (to_f32 ? GradRows<bf16, float> : GradRows<bf16, bf16>)(logits, targets, scale, losses, dlogits,
                                                            begin, end);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace denseformer {
namespace {

HWY_EXPORT(LossRange);
HWY_EXPORT(GradRange);

void CheckTargets(const Tensor& logits, std::span<const int32_t> targets,
                  std::span<const float> losses) {
  DF_CHECK(logits.count() == static_cast<int64_t>(targets.size()) * logits.cols());
  DF_CHECK(losses.size() == targets.size());
  for (int32_t target : targets) {
    DF_CHECK_MSG(target == kIgnoreTarget || (target >= 0 && target < logits.cols()),
                 "target {} of {}", target, logits.cols());
  }
}

}  // namespace

void CrossEntropyForward(const Tensor& logits, std::span<const int32_t> targets,
                         std::span<float> losses, std::span<uint8_t> correct) {
  CheckTargets(logits, targets, losses);
  DF_CHECK(correct.empty() || correct.size() == targets.size());
  const int64_t rows = static_cast<int64_t>(targets.size());
  ParallelFor(rows, /*grain=*/1, [&](int64_t begin, int64_t end, int) {
    DF_DYNAMIC_DISPATCH(LossRange)(logits, targets, losses, correct, begin, end);
  });
}

void CrossEntropyForwardBackward(const Tensor& logits, std::span<const int32_t> targets,
                                 float scale, std::span<float> losses, const Tensor& dlogits) {
  CheckTargets(logits, targets, losses);
  DF_CHECK(dlogits.count() == logits.count());
  const int64_t rows = static_cast<int64_t>(targets.size());
  ParallelFor(rows, /*grain=*/1, [&](int64_t begin, int64_t end, int) {
    DF_DYNAMIC_DISPATCH(GradRange)(logits, targets, scale, losses, dlogits, begin, end);
  });
}

}  // namespace denseformer
#endif  // HWY_ONCE
