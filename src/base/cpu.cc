#include "base/cpu.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"

#if defined(__x86_64__)
#include <asm/prctl.h>
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace denseformer {
namespace {

using enum CpuFeature;

// The values of DENSEFORMER_CPU, from the fewest features to the most.
struct Setting {
  const char* name;
  CpuFeatures required;  // missing on this CPU: an error
  CpuFeatures allowed;   // used where the CPU has them
};
constexpr Setting kSettings[] = {
    {"baseline", {}, {}},
    {"avx2", {kAvx2}, {kAvx2}},
    {"avx512-nobf16", {kAvx2, kAvx512}, {kAvx2, kAvx512}},
    {"avx512", {kAvx2, kAvx512}, {kAvx2, kAvx512, kAvx512Bf16}},
    {"amx", {kAvx2, kAvx512, kAvx512Bf16, kAmxBf16}, {kAvx2, kAvx512, kAvx512Bf16, kAmxBf16}},
};

#if defined(__x86_64__)

bool DetectAvx512Bf16() {
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & (1u << 5)) != 0;
}

bool DetectAmxTiles() {
  unsigned palettes, b, c, d;
  return __get_cpuid_count(0x1d, 0, &palettes, &b, &c, &d) && palettes >= 1;
}

// Linux gives the tile registers only to processes that ask for them.
bool RequestAmx() {
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  const bool has_tile = (d & (1u << 24)) != 0, has_bf16 = (d & (1u << 22)) != 0;
  if (!has_tile || !has_bf16) return false;
  constexpr int kArchReqXcompPerm = 0x1023, kXfeatureTileData = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureTileData) == 0;
}

CpuFeatures Detect() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return {};
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (!avx512) return {kAvx2};
  if (!DetectAvx512Bf16()) return {kAvx2, kAvx512};
  if (!RequestAmx()) return {kAvx2, kAvx512, kAvx512Bf16};
  return {kAvx2, kAvx512, kAvx512Bf16, kAmxBf16};
}

#else

bool DetectAmxTiles() { return false; }
CpuFeatures Detect() { return {}; }

#endif

CpuFeatures Limited() {
  const CpuFeatures found = Detect();
  const char* wanted = std::getenv("DENSEFORMER_CPU");
  if (wanted == nullptr || *wanted == '\0') return found;
  std::string here, all;
  const Setting* chosen = nullptr;
  for (const Setting& setting : kSettings) {
    all += (all.empty() ? "" : ", ") + std::string(setting.name);
    if (found.HasAll(setting.required))
      here += (here.empty() ? "" : ", ") + std::string(setting.name);
    if (std::string_view(wanted) == setting.name) chosen = &setting;
  }
  if (chosen == nullptr) {
    Throw(ErrorCode::kUsage, "DENSEFORMER_CPU: got '{}', expected one of {}", wanted, all);
  }
  if (!found.HasAll(chosen->required)) {
    Throw(ErrorCode::kUnsupported,
          "DENSEFORMER_CPU: got {}, but this CPU has {}; expected one of {}", wanted,
          CpuName(found), here);
  }
  return found & chosen->allowed;
}

}  // namespace

CpuFeatures GetCpuFeatures() {
  static const CpuFeatures features = Limited();
  return features;
}

const char* CpuName(CpuFeatures features) {
  const char* name = kSettings[0].name;
  for (const Setting& setting : kSettings) {
    if (setting.allowed == features) return setting.name;
    if (features.HasAll(setting.required)) name = setting.name;
  }
  return name;
}

bool DescribesAmxTiles() {
  static const bool describes = DetectAmxTiles();
  return describes && GetCpuFeatures().Has(kAmxBf16);
}

bool HasFastBf16() { return GetCpuFeatures().Has(kAvx512Bf16); }

}  // namespace denseformer
