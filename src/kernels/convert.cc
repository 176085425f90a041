// Copies between element types.
#include "kernels/convert.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/convert.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

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

}  // namespace denseformer
#endif  // HWY_ONCE
