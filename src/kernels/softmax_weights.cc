#include "kernels/softmax_weights.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/softmax_weights.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format off
#include <hwy/contrib/math/math-inl.h>  // after highway.h
// clang-format on

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "kernels/simd.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

float Largest(const float* x, size_t n) {
  const hn::ScalableTag<float> d;
  const size_t step = hn::Lanes(d);
  auto most0 = hn::Set(d, -std::numeric_limits<float>::infinity()), most1 = most0;
  auto odd0 = hn::Zero(d), odd1 = hn::Zero(d);  // NaN once a value is not finite: inf - inf
  size_t i = 0;
  for (; i + 2 * step <= n; i += 2 * step) {
    const auto x0 = hn::LoadU(d, x + i), x1 = hn::LoadU(d, x + i + step);
    most0 = hn::Max(most0, x0);
    most1 = hn::Max(most1, x1);
    odd0 = hn::Add(odd0, hn::Sub(x0, x0));
    odd1 = hn::Add(odd1, hn::Sub(x1, x1));
  }
  float most = hn::GetLane(hn::MaxOfLanes(d, hn::Max(most0, most1)));
  float odd = hn::GetLane(hn::SumOfLanes(d, hn::Add(odd0, odd1)));
  for (; i < n; ++i) {
    most = std::max(most, x[i]);
    odd += x[i] - x[i];
  }
  return most + odd;
}

double Weights(const float* x, size_t n, float largest, double temperature, double* weights) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const auto shift = hn::Set(d, static_cast<double>(largest));
  const auto divisor = hn::Set(d, temperature);
  const auto weights_of = [&](hn::Vec<decltype(df)> logits) HWY_ATTR {
    return hn::Exp(d, hn::Div(hn::Sub(hn::PromoteTo(d, logits), shift), divisor));
  };
  const size_t step = hn::Lanes(d);
  auto sum = hn::Zero(d);
  size_t i = 0;
  for (; i + step <= n; i += step) {
    const auto w = weights_of(hn::LoadU(df, x + i));
    hn::StoreU(w, d, weights + i);
    sum = hn::Add(sum, w);
  }
  double total = hn::GetLane(hn::SumOfLanes(d, sum));
  if (i == n) return total;
  HWY_ALIGN float rest[hn::MaxLanes(d)] = {};
  HWY_ALIGN double rest_weights[hn::MaxLanes(d)];
  std::copy(x + i, x + n, rest);
  hn::Store(weights_of(hn::LoadU(df, rest)), d, rest_weights);
  for (size_t r = 0; i < n; ++i, ++r) {
    weights[i] = rest_weights[r];
    total += weights[i];
  }
  return total;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace denseformer {
namespace {

HWY_EXPORT(Largest);
HWY_EXPORT(Weights);

}  // namespace

float LargestFinite(std::span<const float> logits) {
  DF_CHECK(!logits.empty());
  return DF_DYNAMIC_DISPATCH(Largest)(logits.data(), logits.size());
}

double SoftmaxWeights(std::span<const float> logits, float largest, double temperature,
                      std::span<double> weights) {
  DF_CHECK(weights.size() == logits.size() && temperature > 0);
  return DF_DYNAMIC_DISPATCH(Weights)(logits.data(), logits.size(), largest, temperature,
                                      weights.data());
}

}  // namespace denseformer
#endif  // HWY_ONCE
