#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace denseformer {
namespace {

bf16 FromBits(uint32_t bits) {
  bf16 value;
  value.bits = static_cast<uint16_t>(bits);
  return value;
}

// The definition: of the two neighbors the nearer one, of two equally near ones the even one. What
// lies beyond the largest finite number is measured against the next power of two, as if the
// exponent had no end.
uint16_t PlainRound(float value) {
  const uint32_t below = std::bit_cast<uint32_t>(value) >> 16;
  const auto as_double = [](uint32_t bits) {
    const double magnitude =
        (bits & 0x7fffu) == 0x7f80u ? 0x1p128 : std::abs(float(FromBits(bits)));
    return bits & 0x8000u ? -magnitude : magnitude;
  };
  const uint32_t above = below + 1;
  const double to_below = std::abs(double{value} - as_double(below));
  const double to_above = std::abs(as_double(above) - double{value});
  if (to_below != to_above) return static_cast<uint16_t>(to_below < to_above ? below : above);
  return static_cast<uint16_t>(below % 2 == 0 ? below : above);
}

// Every sign, exponent and upper mantissa with the lower halves where the rounding can turn.
TEST(BF16, RoundsToNearestEven) {
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (uint32_t lower : {0x0u, 0x1u, 0x1234u, 0x7fffu, 0x8000u, 0x8001u, 0xabcdu, 0xffffu}) {
      const float value = std::bit_cast<float>(upper << 16 | lower);
      if (!std::isfinite(value)) continue;
      ASSERT_EQ(bf16(value).bits, PlainRound(value)) << std::hex << upper << " " << lower;
    }
  }
}

TEST(BF16, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = static_cast<float>(FromBits(bits));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(static_cast<float>(bf16(value))));
    } else {
      ASSERT_EQ(bf16(value).bits, bits);
    }
  }
}

TEST(BF16, NanStaysNanWhateverItsBits) {
  // A payload in the lower half alone must not become infinity.
  for (uint32_t raw :
       {0x7f800001u, 0x7f80ffffu, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u}) {
    const float value = static_cast<float>(bf16(std::bit_cast<float>(raw)));
    EXPECT_TRUE(std::isnan(value)) << std::hex << raw;
    EXPECT_EQ(std::signbit(value), raw >> 31 == 1) << std::hex << raw;
  }
}

TEST(BF16, Extremes) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(static_cast<float>(bf16(kInfinity)), kInfinity);
  EXPECT_EQ(static_cast<float>(bf16(-kInfinity)), -kInfinity);
  EXPECT_EQ(static_cast<float>(bf16(std::numeric_limits<float>::max())), kInfinity);
  EXPECT_EQ(static_cast<float>(bf16(0x1.FEp127f)), 0x1.FEp127f);
  EXPECT_EQ(bf16(-0.0f).bits, 0x8000);
  EXPECT_EQ(bf16(std::numeric_limits<float>::denorm_min()).bits, 0);
  EXPECT_EQ(static_cast<float>(bf16()), 0);
}

TEST(DType, SizesAndNames) {
  EXPECT_EQ(SizeOf(DType::kF32), sizeof(float));
  EXPECT_EQ(SizeOf(DType::kBF16), sizeof(bf16));
  EXPECT_STREQ(DTypeName(DType::kF32), "fp32");
  EXPECT_STREQ(DTypeName(DType::kBF16), "bf16");
  EXPECT_EQ(DTypeOf<float>::value, DType::kF32);
  EXPECT_EQ(DTypeOf<bf16>::value, DType::kBF16);
}

}  // namespace
}  // namespace denseformer
