#include "tensor/precision.h"

#include <gtest/gtest.h>

#include "base/cpu.h"
#include "base/error_testing.h"

namespace denseformer {
namespace {

TEST(PrecisionTest, NamesParse) {
  EXPECT_EQ(PrecisionNames(), (std::vector<std::string>{"auto", "fp32", "bf16"}));
  EXPECT_EQ(ComputeType(ParsePrecision("fp32")), DType::kF32);
  EXPECT_EQ(ComputeType(ParsePrecision("bf16")), DType::kBF16);
}

TEST(PrecisionTest, Int8IsForInference) {
  EXPECT_EQ(InferencePrecisionNames(), (std::vector<std::string>{"auto", "fp32", "bf16", "int8"}));
  EXPECT_EQ(FormatOf(ParsePrecision("int8")), WeightFormat::kInt8);
  EXPECT_EQ(FormatOf(Precision::kFp32), WeightFormat::kF32);
  EXPECT_EQ(FormatOf(Precision::kBf16), WeightFormat::kBF16);
  ExpectError(ErrorCode::kUsage, "precision: got 'int8', which is for inference",
              [] { ComputeType(Precision::kInt8); });
}

TEST(PrecisionTest, AutoIsWhatThisCpuIsFastAt) {
  EXPECT_EQ(ParsePrecision("auto"), Precision::kAuto);
  EXPECT_EQ(ComputeType(Precision::kAuto), HasFastBf16() ? DType::kBF16 : DType::kF32);
}

TEST(PrecisionTest, OtherNamesAreErrors) {
  for (const char* name : {"", "fp16", "FP32", "bf16 "}) {
    ExpectError(ErrorCode::kUsage,
                std::string("precision: got '") + name + "', expected auto, fp32, bf16, int8",
                [&] { ParsePrecision(name); });
  }
}

}  // namespace
}  // namespace denseformer
