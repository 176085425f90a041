// Rotary embeddings of vectors, for every SIMD target: pairs (a, b) of neighbors become
// (a cos - b sin, b cos + a sin), as v * (cos, cos) + (b, a) * (-sin, sin).
#if defined(DENSEFORMER_KERNELS_ROTARY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DENSEFORMER_KERNELS_ROTARY_INL_H_
#undef DENSEFORMER_KERNELS_ROTARY_INL_H_
#else
#define DENSEFORMER_KERNELS_ROTARY_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {

// Rotates `count` heads of `head_size` elements, contiguous in `from` and in `to`, which may be the
// same. A vector of the table (cos, sin of each pair) serves them all. `direction` is 1, or -1 for
// the inverse; the result is multiplied by `scale`.
#if HWY_TARGET == HWY_SCALAR  // one lane: no pair in a vector
template <class T>
HWY_INLINE void RotateHeads(const float* table, int64_t head_size, int64_t count, float direction,
                            float scale, const T* from, T* to) {
  for (int64_t i = 0; i < count * head_size; i += 2) {
    const float cosine = scale * table[i % head_size];
    const float sine = scale * direction * table[i % head_size + 1];
    const float a = static_cast<float>(from[i]), b = static_cast<float>(from[i + 1]);
    to[i] = static_cast<T>(a * cosine - b * sine);
    to[i + 1] = static_cast<T>(b * cosine + a * sine);
  }
}
#else
template <class T>
HWY_INLINE void RotateHeads(const float* table, int64_t head_size, int64_t count, float direction,
                            float scale, const T* from, T* to) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  const auto sign = hn::OddEven(hn::Set(d, scale * direction), hn::Set(d, -scale * direction));
  ForEachVector(d, head_size, [&](int64_t i, auto lanes) HWY_ATTR {
    const auto angles = LoadLanes(d, table + i, lanes);
    const auto cosine = hn::Mul(hn::DupEven(angles), hn::Set(d, scale));
    const auto sine = hn::Mul(hn::DupOdd(angles), sign);
    for (int64_t h = 0; h < count; ++h) {
      const auto v = LoadLanes(d, from + h * head_size + i, lanes);
      const auto rotated = hn::MulAdd(hn::Reverse2(d, v), sine, hn::Mul(v, cosine));
      StoreLanes(d, rotated, to + h * head_size + i, lanes);
    }
  });
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#endif  // per target
