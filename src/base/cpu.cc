#include "base/cpu.h"

#include <cstdlib>
#include <iterator>
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

constexpr const char* kNames[] = {"baseline", "avx2", "avx512", "amx"};

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

CpuLevel Detect() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return CpuLevel::kBaseline;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (!avx512) return CpuLevel::kAvx2;
  return DetectAvx512Bf16() && RequestAmx() ? CpuLevel::kAmx : CpuLevel::kAvx512;
}

#else

bool DetectAvx512Bf16() { return false; }
bool DetectAmxTiles() { return false; }
CpuLevel Detect() { return CpuLevel::kBaseline; }

#endif

CpuLevel Limited() {
  const CpuLevel found = Detect();
  const char* wanted = std::getenv("DENSEFORMER_CPU");
  if (wanted == nullptr || *wanted == '\0') return found;
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (std::string_view(wanted) != kNames[i]) continue;
    const CpuLevel level = static_cast<CpuLevel>(i);
    if (level > found) {
      Throw(ErrorCode::kUnsupported, "DENSEFORMER_CPU: got {}, but this CPU has {}", wanted,
            CpuLevelName(found));
    }
    return level;
  }
  Throw(ErrorCode::kUsage, "DENSEFORMER_CPU: got '{}', expected baseline, avx2, avx512 or amx",
        wanted);
}

}  // namespace

CpuLevel GetCpuLevel() {
  static const CpuLevel level = Limited();
  return level;
}

const char* CpuLevelName(CpuLevel level) { return kNames[static_cast<int>(level)]; }

bool HasAvx512Bf16() {
  static const bool has = DetectAvx512Bf16();
  return has && GetCpuLevel() >= CpuLevel::kAvx512;
}

bool DescribesAmxTiles() {
  static const bool describes = DetectAmxTiles();
  return describes && GetCpuLevel() == CpuLevel::kAmx;
}

bool HasFastBf16() { return HasAvx512Bf16(); }

}  // namespace denseformer
