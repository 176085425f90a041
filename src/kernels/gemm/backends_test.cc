// The choice of a GEMM backend.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "base/error_testing.h"
#include "kernels/gemm/backend.h"
#include "kernels/gemm/gemm.h"

namespace denseformer {
namespace {

// Prints the backend in use with DENSEFORMER_GEMM set, or the error.
[[noreturn]] void PrintBackend(const char* setting, DType compute) {
  setenv("DENSEFORMER_GEMM", setting, 1);
  try {
    std::fprintf(stderr, "backend %s; ", GemmBackendFor(compute).name);
    std::fprintf(stderr, "described as %s", GemmDescription().c_str());
  } catch (const Error& error) {
    std::fprintf(stderr, "%s: %s", ErrorName(error.code()), error.what());
  }
  std::_Exit(0);
}

TEST(GemmBackendsDeathTest, TheEnvironmentNamesOne) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto done = testing::ExitedWithCode(0);
  EXPECT_EXIT(PrintBackend("", DType::kF32), done, "backend onednn; described as .*oneDNN [0-9]");
  for (DType compute : {DType::kF32, DType::kBF16}) {
    EXPECT_EXIT(PrintBackend("onednn", compute), done, "backend onednn; described as oneDNN [0-9]");
    EXPECT_EXIT(PrintBackend("reference", compute), done,
                "backend reference; described as plain reference loops");
  }
  // Not for fp32 anywhere; for bf16 where the CPU can.
  EXPECT_EXIT(PrintBackend("amx", DType::kF32), done,
              "unsupported: DENSEFORMER_GEMM: got amx, which needs bf16 and a CPU with AMX; "
              "expected for fp32 on this CPU .*: onednn, reference");
  EXPECT_EXIT(
      PrintBackend("amx", DType::kBF16), done,
      "backend amx; described as own kernels on AMX|unsupported: DENSEFORMER_GEMM: got amx, "
      "which needs bf16 and a CPU with AMX");
  EXPECT_EXIT(PrintBackend("mkl", DType::kF32), done,
              "usage: DENSEFORMER_GEMM: got 'mkl', expected one of amx, onednn, reference");
}

TEST(GemmBackends, AScopeOverridesTheChoice) {
  const GemmBackend* const reference = FindGemmBackend("reference");
  ASSERT_NE(reference, nullptr);
  const GemmBackend* const before = &GemmBackendFor(DType::kF32);
  {
    const ScopedGemmBackend scope(reference);
    EXPECT_EQ(&GemmBackendFor(DType::kF32), reference);
    EXPECT_EQ(PackedWeight::CopyBytes(3, 5, DType::kBF16), 30u);
  }
  EXPECT_EQ(&GemmBackendFor(DType::kF32), before);
  EXPECT_EQ(FindGemmBackend("mkl"), nullptr);
}

TEST(GemmBackends, AmxNeedsItsFlag) {
  using enum CpuFeature;
  const GemmBackend* const amx = FindGemmBackend("amx");
  EXPECT_FALSE(amx->available(DType::kBF16, {kAvx2, kAvx512, kAvx512Vnni, kAvx512Bf16}));
  EXPECT_FALSE(amx->available(DType::kF32, {kAvx2, kAvx512, kAvx512Vnni, kAvx512Bf16, kAmxBf16}));
}

}  // namespace
}  // namespace denseformer
