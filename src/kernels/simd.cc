#include "kernels/simd.h"

#include <hwy/targets.h>

#include "base/cpu.h"

namespace denseformer {
namespace {

int64_t AllowedTargets() {
  const int64_t supported = hwy::SupportedTargets();
#if HWY_ARCH_X86
  // In Highway's masks a better target has a lower bit.
  switch (GetCpuLevel()) {
    case CpuLevel::kBaseline:
      return supported & HWY_STATIC_TARGET;
    case CpuLevel::kAvx2:
      return supported & ~(HWY_AVX2 - 1);
    case CpuLevel::kAvx512:
    case CpuLevel::kAmx:
      break;
  }
#endif
  return supported;
}

}  // namespace

namespace simd_internal {
bool has_avx512_bf16 = false;
}  // namespace simd_internal

void LimitSimdTargets() {
  [[maybe_unused]] static const bool once = [] {
    const int64_t allowed = AllowedTargets();
    hwy::SetSupportedTargetsForTest(allowed != 0 ? allowed : HWY_STATIC_TARGET);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    simd_internal::has_avx512_bf16 = HasAvx512Bf16();
    return true;
  }();
}

const char* SimdTargetName() {
  LimitSimdTargets();
  const int64_t targets = hwy::SupportedTargets();
  return hwy::TargetName(targets & -targets);
}

}  // namespace denseformer
