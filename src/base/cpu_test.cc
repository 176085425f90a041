#include "base/cpu.h"

#include <cstdio>
#include <cstdlib>

#include "base/error_testing.h"

namespace denseformer {
namespace {

using enum CpuFeature;

// Prints the features in use with DENSEFORMER_CPU set, or the error.
[[noreturn]] void PrintFeatures(const char* setting) {
  setenv("DENSEFORMER_CPU", setting, 1);
  try {
    const CpuFeatures cpu = GetCpuFeatures();
    std::fprintf(stderr, "name %s: %s.", CpuName(cpu), CpuFeatureList(cpu).c_str());
  } catch (const Error& error) {
    std::fprintf(stderr, "%s: %s", ErrorName(error.code()), error.what());
  }
  std::_Exit(0);
}

TEST(CpuDeathTest, TheEnvironmentLimitsTheFeatures) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto done = testing::ExitedWithCode(0);
  EXPECT_EXIT(PrintFeatures(""), done,
              "name (baseline|avx2|avx512-novnni|avx512-nobf16|avx512|amx): ");
  EXPECT_EXIT(PrintFeatures("baseline"), done, "name baseline: none\\.");
  // Where the CPU has less, it says so instead of testing less than was asked for.
  const std::string unsupported = "|unsupported: .*but this CPU has .*; expected one of baseline";
  EXPECT_EXIT(PrintFeatures("avx2"), done, "name avx2: AVX2\\." + unsupported);
  EXPECT_EXIT(PrintFeatures("avx512-novnni"), done,
              "name avx512-novnni: AVX2, AVX-512\\." + unsupported);
  EXPECT_EXIT(PrintFeatures("avx512-nobf16"), done,
              "name avx512-nobf16: AVX2, AVX-512, VNNI\\." + unsupported);
  EXPECT_EXIT(PrintFeatures("avx512"), done,
              "name avx512: AVX2, AVX-512, VNNI, BF16\\." + unsupported);
  EXPECT_EXIT(PrintFeatures("amx"), done,
              "name amx: AVX2, AVX-512, VNNI, BF16, AMX-BF16, AMX-INT8\\." + unsupported);
  EXPECT_EXIT(PrintFeatures("AVX2"), done,
              "usage: DENSEFORMER_CPU: got 'AVX2', expected one of baseline, avx2, avx512-novnni, "
              "avx512-nobf16, avx512, amx");
}

TEST(Cpu, SetsOfFeatures) {
  constexpr CpuFeatures some{kAvx2, kAvx512}, all{kAvx2, kAvx512, kAvx512Bf16, kAmxBf16};
  EXPECT_TRUE(some.Has(kAvx512));
  EXPECT_FALSE(some.Has(kAvx512Bf16));
  EXPECT_TRUE(all.HasAll(some));
  EXPECT_FALSE(some.HasAll(all));
  EXPECT_EQ(all & some, some);
  EXPECT_EQ(some | all, all);
}

TEST(Cpu, NamesOfSets) {
  EXPECT_STREQ(CpuName({}), "baseline");
  EXPECT_STREQ(CpuName({kAvx2}), "avx2");
  EXPECT_STREQ(CpuName({kAvx2, kAvx512}), "avx512-novnni");
  EXPECT_STREQ(CpuName({kAvx2, kAvx512, kAvx512Vnni}), "avx512-nobf16");
  EXPECT_STREQ(CpuName({kAvx2, kAvx512, kAvx512Vnni, kAvx512Bf16}), "avx512");
  EXPECT_STREQ(CpuName({kAvx2, kAvx512, kAvx512Vnni, kAvx512Bf16, kAmxBf16, kAmxInt8}), "amx");
}

}  // namespace
}  // namespace denseformer
