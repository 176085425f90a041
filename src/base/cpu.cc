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

// The values of DENSEFORMER_CPU. Each set holds the one before it, as the CPUs' generations do:
// Skylake-X, Cascade Lake and Ice Lake, Cooper Lake and Zen 4, Sapphire Rapids.
struct Setting {
  const char* name;
  CpuFeatures features;
};
constexpr Setting kSettings[] = {
    {"baseline", {}},
    {"avx2", {kAvx2}},
    {"avx512-novnni", {kAvx2, kAvx512}},
    {"avx512-nobf16", {kAvx2, kAvx512, kAvx512Vnni}},
    {"avx512", {kAvx2, kAvx512, kAvx512Vnni, kAvx512Bf16}},
    {"amx", {kAvx2, kAvx512, kAvx512Vnni, kAvx512Bf16, kAmxBf16, kAmxInt8}},
};

struct FeatureName {
  CpuFeature feature;
  const char* name;
};
constexpr FeatureName kFeatureNames[] = {
    {kAvx2, "AVX2"},       {kAvx512, "AVX-512"},   {kAvx512Vnni, "VNNI"},
    {kAvx512Bf16, "BF16"}, {kAmxBf16, "AMX-BF16"}, {kAmxInt8, "AMX-INT8"},
};

// What a test emulates.
constinit CpuFeatures emulated;

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
CpuFeatures RequestAmx() {
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return {};
  const bool has_tile = (d & (1u << 24)) != 0, has_bf16 = (d & (1u << 22)) != 0;
  if (!has_tile || !has_bf16) return {};
  constexpr int kArchReqXcompPerm = 0x1023, kXfeatureTileData = 18;
  if (syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureTileData) != 0) return {};
  const bool has_int8 = (d & (1u << 25)) != 0;
  return has_int8 ? CpuFeatures{kAmxBf16, kAmxInt8} : CpuFeatures{kAmxBf16};
}

CpuFeatures Detect() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return {};
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (!avx512) return {kAvx2};
  if (!__builtin_cpu_supports("avx512vnni")) return {kAvx2, kAvx512};
  if (!DetectAvx512Bf16()) return {kAvx2, kAvx512, kAvx512Vnni};
  return RequestAmx() | CpuFeatures{kAvx2, kAvx512, kAvx512Vnni, kAvx512Bf16};
}

#else

bool DetectAmxTiles() { return false; }
CpuFeatures Detect() { return {}; }

#endif

CpuFeatures Limited() {
  CpuFeatures found = Detect();
  if (found.HasAll({kAvx2, kAvx512, kAvx512Vnni})) found = found | emulated;
  const char* wanted = std::getenv("DENSEFORMER_CPU");
  if (wanted == nullptr || *wanted == '\0') return found;
  std::string here, all;
  const Setting* chosen = nullptr;
  for (const Setting& setting : kSettings) {
    all += (all.empty() ? "" : ", ") + std::string(setting.name);
    if (found.HasAll(setting.features))
      here += (here.empty() ? "" : ", ") + std::string(setting.name);
    if (std::string_view(wanted) == setting.name) chosen = &setting;
  }
  if (chosen == nullptr) {
    Throw(ErrorCode::kUsage, "DENSEFORMER_CPU: got '{}', expected one of {}", wanted, all);
  }
  if (!found.HasAll(chosen->features)) {
    Throw(ErrorCode::kUnsupported,
          "DENSEFORMER_CPU: got {}, but this CPU has {}; expected one of {}", wanted,
          CpuName(found), here);
  }
  return chosen->features;
}

}  // namespace

CpuFeatures GetCpuFeatures() {
  static const CpuFeatures features = Limited();
  return features;
}

void AddCpuFeaturesForTesting(CpuFeatures features) { emulated = features; }

const char* CpuName(CpuFeatures features) {
  const char* name = kSettings[0].name;
  for (const Setting& setting : kSettings) {
    if (features.HasAll(setting.features)) name = setting.name;
  }
  return name;
}

std::string CpuFeatureList(CpuFeatures features) {
  std::string list;
  for (const FeatureName& row : kFeatureNames) {
    if (features.Has(row.feature)) list += (list.empty() ? "" : ", ") + std::string(row.name);
  }
  return list.empty() ? "none" : list;
}

bool DescribesAmxTiles() {
  static const bool describes = DetectAmxTiles();
  return describes && GetCpuFeatures().Has(kAmxBf16);
}

bool HasFastBf16() { return GetCpuFeatures().Has(kAvx512Bf16); }

}  // namespace denseformer
