#include "kernels/memory_limit.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/memory_limit.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <atomic>

#include "base/parallel.h"
#include "kernels/simd.h"
#include "kernels/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// So far ahead that the memory is never idle; beyond the hardware's own prefetching.
constexpr int64_t kAheadWords = 1024;

uint64_t SumOfRange(const uint64_t* words, int64_t n) {
  const hn::ScalableTag<uint64_t> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    __builtin_prefetch(words + i + kAheadWords);
    __builtin_prefetch(words + i + kAheadWords + lanes);
    sum0 = hn::Add(sum0, hn::LoadU(d, words + i));
    sum1 = hn::Add(sum1, hn::LoadU(d, words + i + lanes));
  }
  uint64_t total = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; i < n; ++i) total += words[i];
  return total;
}

void RotateRange(float* HWY_RESTRICT a, const float* HWY_RESTRICT b, float* HWY_RESTRICT c,
                 float* HWY_RESTRICT e, int64_t n) {
  const hn::ScalableTag<float> d;
  ForEachVector(d, n, [&](int64_t i, auto lanes) HWY_ATTR {
    __builtin_prefetch(b + i + kAheadWords);
    for (const float* array : {a, c, e}) __builtin_prefetch(array + i + kAheadWords, /*rw=*/1);
    const auto x = LoadLanes(d, a + i, lanes), y = LoadLanes(d, b + i, lanes);
    const auto z = LoadLanes(d, c + i, lanes), w = LoadLanes(d, e + i, lanes);
    StoreLanes(d, z, a + i, lanes);
    StoreLanes(d, w, c + i, lanes);
    StoreLanes(d, hn::Max(x, y), e + i, lanes);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace denseformer {
namespace {

HWY_EXPORT(SumOfRange);
HWY_EXPORT(RotateRange);

}  // namespace

uint64_t ReadBytes(std::span<const std::byte> bytes) {
  const uint64_t* words = reinterpret_cast<const uint64_t*>(bytes.data());
  std::atomic<uint64_t> total{0};
  ParallelFor(static_cast<int64_t>(bytes.size() / 8), /*grain=*/1 << 16,
              [&](int64_t begin, int64_t end, int) {
                total += DF_DYNAMIC_DISPATCH(SumOfRange)(words + begin, end - begin);
              });
  return total;
}

void TouchFour(std::span<float> a, std::span<const float> b, std::span<float> c,
               std::span<float> d) {
  ParallelFor(
      static_cast<int64_t>(a.size()), /*grain=*/1 << 16, [&](int64_t begin, int64_t end, int) {
        DF_DYNAMIC_DISPATCH(RotateRange)
        (a.data() + begin, b.data() + begin, c.data() + begin, d.data() + begin, end - begin);
      });
}

}  // namespace denseformer
#endif  // HWY_ONCE
