// Loops over a row in whole vectors and one partial vector at the end, for every SIMD target.
//
// The body is called as body(i, lanes): element i is the first of the vector; `lanes` is Whole or
// Part and goes to LoadLanes and StoreLanes, which touch no memory beyond the row. Lambdas given
// here carry HWY_ATTR, so that they are compiled for the target.
#if defined(DENSEFORMER_KERNELS_VECTOR_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DENSEFORMER_KERNELS_VECTOR_LOOP_INL_H_
#undef DENSEFORMER_KERNELS_VECTOR_LOOP_INL_H_
#else
#define DENSEFORMER_KERNELS_VECTOR_LOOP_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>

#include "kernels/load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct Whole {};
struct Part {
  size_t count;  // of elements, fewer than the vector has
};

template <class D, class T>
HWY_INLINE hn::Vec<D> LoadLanes(D d, const T* from, Whole) {
  return LoadF32(d, from);
}

// The lanes past the end are 0.
template <class D, class T>
HWY_INLINE hn::Vec<D> LoadLanes(D d, const T* from, Part part) {
  HWY_ALIGN T buffer[hn::MaxLanes(d)] = {};
  std::memcpy(buffer, from, part.count * sizeof(T));
  return LoadF32(d, buffer);
}

template <class D, class T>
HWY_INLINE void StoreLanes(D d, hn::Vec<D> value, T* to, Whole) {
  StoreF32(d, value, to);
}

template <class D, class T>
HWY_INLINE void StoreLanes(D d, hn::Vec<D> value, T* to, Part part) {
  HWY_ALIGN T buffer[hn::MaxLanes(d)];
  StoreF32(d, value, buffer);
  std::memcpy(to, buffer, part.count * sizeof(T));
}

template <class D>
HWY_INLINE hn::Vec<D> ZeroUnused(D, hn::Vec<D> value, Whole) {
  return value;
}
template <class D>
HWY_INLINE hn::Vec<D> ZeroUnused(D d, hn::Vec<D> value, Part part) {
  return hn::IfThenElseZero(hn::FirstN(d, part.count), value);
}

template <class D, class F>
HWY_INLINE void ForEachVector(D d, int64_t n, F&& body) {
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + step <= n; i += step) body(i, Whole{});
  if (i < n) body(i, Part{static_cast<size_t>(n - i)});
}

// The sum over a row of the vectors that body returns, in each lane a part of it. Four chains, so
// that the sum does not wait for the latency of one addition after the other.
template <class D, class F>
HWY_INLINE hn::Vec<D> SumVectors(D d, int64_t n, F&& body) {
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    sum0 = hn::Add(sum0, body(i, Whole{}));
    sum1 = hn::Add(sum1, body(i + step, Whole{}));
    sum2 = hn::Add(sum2, body(i + 2 * step, Whole{}));
    sum3 = hn::Add(sum3, body(i + 3 * step, Whole{}));
  }
  for (; i + step <= n; i += step) sum0 = hn::Add(sum0, body(i, Whole{}));
  if (i < n) {
    const Part part{static_cast<size_t>(n - i)};
    sum1 = hn::Add(sum1, ZeroUnused(d, body(i, part), part));
  }
  return hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
}

template <class D>
HWY_INLINE float SumLanes(D d, hn::Vec<D> value) {
  return hn::GetLane(hn::SumOfLanes(d, value));
}

}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#endif  // per target
