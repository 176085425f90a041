#include "base/cpu.h"

#include <cstdio>
#include <cstdlib>

#include "base/error_testing.h"

namespace denseformer {
namespace {

// Prints the level in use with DENSEFORMER_CPU set, or the error.
[[noreturn]] void PrintLevel(const char* setting) {
  setenv("DENSEFORMER_CPU", setting, 1);
  try {
    std::fprintf(stderr, "level %s bf16 %d", CpuLevelName(GetCpuLevel()), HasAvx512Bf16());
  } catch (const Error& error) {
    std::fprintf(stderr, "%s: %s", ErrorName(error.code()), error.what());
  }
  std::_Exit(0);
}

TEST(CpuDeathTest, TheEnvironmentLowersTheLevel) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto done = testing::ExitedWithCode(0);
  EXPECT_EXIT(PrintLevel(""), done, "level (baseline|avx2|avx512|amx)");
  EXPECT_EXIT(PrintLevel("baseline"), done, "level baseline bf16 0");
  // Where the CPU has less, it says so instead of testing less than was asked for.
  EXPECT_EXIT(PrintLevel("avx2"), done, "level avx2 bf16 0|unsupported: .*but this CPU has");
  EXPECT_EXIT(PrintLevel("avx512"), done, "level avx512|unsupported: .*but this CPU has");
  EXPECT_EXIT(PrintLevel("amx"), done, "level amx bf16 1|unsupported: .*but this CPU has");
  EXPECT_EXIT(PrintLevel("AVX2"), done, "usage: DENSEFORMER_CPU: got 'AVX2', expected baseline");
}

TEST(Cpu, NamesFollowTheOrderOfTheLevels) {
  EXPECT_STREQ(CpuLevelName(CpuLevel::kBaseline), "baseline");
  EXPECT_STREQ(CpuLevelName(CpuLevel::kAvx2), "avx2");
  EXPECT_STREQ(CpuLevelName(CpuLevel::kAvx512), "avx512");
  EXPECT_STREQ(CpuLevelName(CpuLevel::kAmx), "amx");
}

}  // namespace
}  // namespace denseformer
