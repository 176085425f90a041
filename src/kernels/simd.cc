#include "kernels/simd.h"

#include <hwy/targets.h>

#include "base/cpu.h"

namespace denseformer {
namespace {

int64_t AllowedTargets() {
  const int64_t supported = hwy::SupportedTargets();
#if HWY_ARCH_X86
  // In Highway's masks a better target has a lower bit; AVX3_DL uses VNNI, and all that are better
  // use BF16.
  const CpuFeatures cpu = GetCpuFeatures();
  if (!cpu.Has(CpuFeature::kAvx2)) return supported & HWY_STATIC_TARGET;
  if (!cpu.Has(CpuFeature::kAvx512)) return supported & ~(HWY_AVX2 - 1);
  if (!cpu.Has(CpuFeature::kAvx512Vnni)) return supported & ~(HWY_AVX3 - 1);
  if (!cpu.Has(CpuFeature::kAvx512Bf16)) return supported & ~(HWY_AVX3_DL - 1);
#endif
  return supported;
}

}  // namespace

namespace simd_internal {
bool has_avx512_vnni = false;
bool has_avx512_bf16 = false;
}  // namespace simd_internal

void LimitSimdTargets() {
  [[maybe_unused]] static const bool once = [] {
    const int64_t allowed = AllowedTargets();
    hwy::SetSupportedTargetsForTest(allowed != 0 ? allowed : HWY_STATIC_TARGET);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    simd_internal::has_avx512_vnni = GetCpuFeatures().Has(CpuFeature::kAvx512Vnni);
    simd_internal::has_avx512_bf16 = GetCpuFeatures().Has(CpuFeature::kAvx512Bf16);
    return true;
  }();
}

const char* SimdTargetName() {
  LimitSimdTargets();
  const int64_t targets = hwy::SupportedTargets();
  return hwy::TargetName(targets & -targets);
}

}  // namespace denseformer
