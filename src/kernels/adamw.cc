// AdamW and the sum of squares for the norm of the gradient.
#include "kernels/adamw.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/adamw.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "kernels/simd.h"
#include "kernels/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Elements that are fetched ahead of the loop: more than the hardware's own prefetching does.
constexpr int64_t kAhead = 1024;

// The corrections of the bias are folded into two factors, computed in fp64:
//   rate / (1 - b1^t) for m, and 1 / sqrt(1 - b2^t) for sqrt(v).
void UpdateRange(const AdamWStep& step, float* HWY_RESTRICT w, const float* HWY_RESTRICT g,
                 float* HWY_RESTRICT m, float* HWY_RESTRICT v, int64_t n) {
  const hn::ScalableTag<float> d;
  const double t = static_cast<double>(step.step), beta1 = step.beta1, beta2 = step.beta2;
  const auto scale = hn::Set(d, step.gradient_scale);
  const auto keep1 = hn::Set(d, step.beta1), take1 = hn::Set(d, static_cast<float>(1 - beta1));
  const auto keep2 = hn::Set(d, step.beta2), take2 = hn::Set(d, static_cast<float>(1 - beta2));
  const auto keep_w = hn::Set(d, static_cast<float>(1 - double{step.rate} * step.decay));
  const auto rate = hn::Set(d, static_cast<float>(step.rate / (1 - std::pow(beta1, t))));
  const auto root = hn::Set(d, static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, t))));
  const auto epsilon = hn::Set(d, step.epsilon);
  ForEachVector(d, n, [&](int64_t i, auto lanes) HWY_ATTR {
    __builtin_prefetch(g + i + kAhead);
    for (const float* array : {w, m, v}) __builtin_prefetch(array + i + kAhead, /*rw=*/1);
    const auto gradient = hn::Mul(LoadLanes(d, g + i, lanes), scale);
    const auto m1 = hn::MulAdd(keep1, LoadLanes(d, m + i, lanes), hn::Mul(take1, gradient));
    const auto square = hn::Mul(hn::Mul(take2, gradient), gradient);
    const auto v1 = hn::MulAdd(keep2, LoadLanes(d, v + i, lanes), square);
    const auto change = hn::Div(hn::Mul(rate, m1), hn::MulAdd(hn::Sqrt(v1), root, epsilon));
    const auto w1 = hn::Sub(hn::Mul(LoadLanes(d, w + i, lanes), keep_w), change);
    StoreLanes(d, w1, w + i, lanes);
    StoreLanes(d, m1, m + i, lanes);
    StoreLanes(d, v1, v + i, lanes);
  });
}

double SquaresOfRange(const float* x, int64_t n) {
  const hn::ScalableTag<double> dd;
  const hn::Rebind<float, decltype(dd)> d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(dd));
  auto sum0 = hn::Zero(dd), sum1 = hn::Zero(dd), sum2 = hn::Zero(dd), sum3 = hn::Zero(dd);
  const auto at = [&](int64_t i) HWY_ATTR { return hn::PromoteTo(dd, hn::LoadU(d, x + i)); };
  int64_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    __builtin_prefetch(x + i + kAhead);
    __builtin_prefetch(x + i + kAhead + 2 * step);
    const auto a = at(i), b = at(i + step), c = at(i + 2 * step), e = at(i + 3 * step);
    sum0 = hn::MulAdd(a, a, sum0);
    sum1 = hn::MulAdd(b, b, sum1);
    sum2 = hn::MulAdd(c, c, sum2);
    sum3 = hn::MulAdd(e, e, sum3);
  }
  const auto sum = hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
  double total = hn::GetLane(hn::SumOfLanes(dd, sum));
  for (; i < n; ++i) total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return total;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace denseformer {
namespace {

HWY_EXPORT(UpdateRange);
HWY_EXPORT(SquaresOfRange);

}  // namespace

void AdamWUpdate(const AdamWStep& step, std::span<float> weights, std::span<const float> gradients,
                 std::span<float> first_moment, std::span<float> second_moment) {
  DF_CHECK(gradients.size() == weights.size() && first_moment.size() == weights.size());
  DF_CHECK(second_moment.size() == weights.size() && step.step >= 1);
  const int64_t count = static_cast<int64_t>(weights.size());
  ParallelFor(count, /*grain=*/4096, [&](int64_t begin, int64_t end, int) {
    DF_DYNAMIC_DISPATCH(UpdateRange)
    (step, weights.data() + begin, gradients.data() + begin, first_moment.data() + begin,
     second_moment.data() + begin, end - begin);
  });
}

double SumOfSquares(std::span<const float> values) {
  constexpr int64_t kMostPartitions = 256, kLeastElements = 4096;
  const int64_t count = static_cast<int64_t>(values.size());
  const int64_t partitions =
      std::clamp<int64_t>(count / kLeastElements, int64_t{1}, kMostPartitions);
  double partial[kMostPartitions];
  ParallelFor(partitions, /*grain=*/1, [&](int64_t first, int64_t last, int) {
    for (int64_t p = first; p < last; ++p) {
      const int64_t begin = count * p / partitions, end = count * (p + 1) / partitions;
      partial[p] = DF_DYNAMIC_DISPATCH(SquaresOfRange)(values.data() + begin, end - begin);
    }
  });
  double sum = 0;
  for (int64_t p = 0; p < partitions; ++p) sum += partial[p];
  return sum;
}

}  // namespace denseformer
#endif  // HWY_ONCE
