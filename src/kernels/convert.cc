// Copies between element types.
#include "kernels/convert.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/convert.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "base/parallel.h"
#include "kernels/simd.h"
#include "kernels/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <class From, class To>
void ConvertElements(const From* from, To* to, int64_t n) {
  const hn::ScalableTag<float> d;
  ForEachVector(d, n, [&](int64_t i, auto lanes) HWY_ATTR {
    StoreLanes(d, LoadLanes(d, from + i, lanes), to + i, lanes);
  });
}

// Elements that are rounded in the first cache and then stored from there: no instruction of every
// target rounds a whole line.
constexpr int64_t kChunk = 1024;

void ToBf16Past(const float* from, bf16* to, int64_t n) {
  const hn::ScalableTag<uint16_t> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), line = 64;
  const int64_t misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % line);
  int64_t i = std::min<int64_t>(n, (line - misaligned) % line / static_cast<int64_t>(sizeof(bf16)));
  ConvertElements(from, to, i);
  HWY_ALIGN uint16_t chunk[kChunk];
  while (n - i >= lanes) {
    const int64_t count = std::min(kChunk, (n - i) / lanes * lanes);
    ConvertElements(from + i, reinterpret_cast<bf16*>(chunk), count);
    uint16_t* past = reinterpret_cast<uint16_t*>(to + i);
    for (int64_t k = 0; k < count; k += lanes) hn::Stream(hn::Load(d, chunk + k), d, past + k);
    i += count;
  }
  ConvertElements(from + i, to + i, n - i);
}

void ToBf16(const float* from, bf16* to, int64_t n) { ConvertElements(from, to, n); }
void ToF32(const bf16* from, float* to, int64_t n) { ConvertElements(from, to, n); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace denseformer {
namespace {

HWY_EXPORT(ToBf16);
HWY_EXPORT(ToBf16Past);
HWY_EXPORT(ToF32);

}  // namespace

void Convert(const Tensor& from, const Tensor& to) {
  DF_CHECK(from.count() == to.count());
  if (from.dtype() == to.dtype() && from.raw() == to.raw()) return;
  ParallelFor(from.count(), /*grain=*/8192, [&](int64_t begin, int64_t end, int) {
    const int64_t n = end - begin;
    if (from.dtype() == to.dtype()) {
      const size_t size = SizeOf(from.dtype());
      std::memcpy(static_cast<char*>(to.raw()) + begin * size,
                  static_cast<const char*>(from.raw()) + begin * size, n * size);
    } else if (from.dtype() == DType::kF32) {
      DF_DYNAMIC_DISPATCH(ToBf16)(from.f32() + begin, to.As<bf16>() + begin, n);
    } else {
      DF_DYNAMIC_DISPATCH(ToF32)(from.As<bf16>() + begin, to.f32() + begin, n);
    }
  });
}

void ConvertPast(const float* from, bf16* to, int64_t n) {
  DF_DYNAMIC_DISPATCH(ToBf16Past)(from, to, n);
}

}  // namespace denseformer
#endif  // HWY_ONCE
