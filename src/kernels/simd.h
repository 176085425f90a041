// Highway's run-time dispatch, limited to the CPU features in use (base/cpu.h).
//
// A kernel file includes, in this order:
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "kernels/x.cc"
//   #include <hwy/foreach_target.h>
//   #include <hwy/highway.h>
// and calls its kernel with DF_DYNAMIC_DISPATCH(Kernel)(arguments).
#ifndef DENSEFORMER_KERNELS_SIMD_H_
#define DENSEFORMER_KERNELS_SIMD_H_

namespace denseformer {

// Tells Highway which targets it may choose. Runs once; the first dispatched call must come after.
void LimitSimdTargets();

// The Highway target that the kernels run on ("AVX3").
const char* SimdTargetName();

namespace simd_internal {
// Set by LimitSimdTargets: CpuFeature::kAvx512Vnni and kAvx512Bf16 at the price of a load.
extern bool has_avx512_vnni;
extern bool has_avx512_bf16;
}  // namespace simd_internal

}  // namespace denseformer

#define DF_DYNAMIC_DISPATCH(function) \
  (::denseformer::LimitSimdTargets(), HWY_DYNAMIC_DISPATCH(function))

#endif  // DENSEFORMER_KERNELS_SIMD_H_
