// Exp, LoadF32 and StoreF32 on the SIMD target in use.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/simd.h"
#include "tensor/dtype.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/exp_test.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on
#include "kernels/exp-inl.h"
#include "kernels/load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {

// In whole vectors: `count` must be a multiple of 16.
void ExpAll(const float* x, size_t count, float* y) {
  const hwy::HWY_NAMESPACE::CappedTag<float, 16> d;
  for (size_t i = 0; i < count; i += Lanes(d)) StoreF32(d, Exp(d, LoadF32(d, x + i)), y + i);
}

void ToBf16(const float* x, size_t count, bf16* y) {
  const hwy::HWY_NAMESPACE::CappedTag<float, 16> d;
  for (size_t i = 0; i < count; i += Lanes(d)) StoreF32(d, LoadF32(d, x + i), y + i);
}

void FromBf16(const bf16* x, size_t count, float* y) {
  const hwy::HWY_NAMESPACE::CappedTag<float, 16> d;
  for (size_t i = 0; i < count; i += Lanes(d)) StoreF32(d, LoadF32(d, x + i), y + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace denseformer {

HWY_EXPORT(ExpAll);
HWY_EXPORT(ToBf16);
HWY_EXPORT(FromBf16);

namespace {

// Every `step`-th bit pattern of an fp32, in blocks of 4,096.
template <class F>
void ForFloats(uint32_t step, F&& check) {
  std::vector<float> block;
  for (uint64_t bits = 0; bits <= UINT32_MAX; bits += step) {
    block.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    if (block.size() == 4096) {
      check(block);
      block.clear();
    }
  }
}

// The distance of `got` from the exact value in units of the last place of the exact value.
double UlpError(float got, double exact) {
  if (exact > std::numeric_limits<float>::max()) {
    return std::isinf(got) ? 0 : (exact - got) * 0x1p-104;
  }
  const int exponent = std::max(std::ilogb(exact), -126);
  return std::abs(got - exact) / std::ldexp(1.0, exponent - 23);
}

TEST(Exp, WithinOneUlpOverTheWholeRange) {
  double worst = 0;
  ForFloats(4099, [&](const std::vector<float>& x) {
    std::vector<float> y(x.size());
    DF_DYNAMIC_DISPATCH(ExpAll)(x.data(), x.size(), y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(x[i])) {
        ASSERT_TRUE(std::isnan(y[i])) << x[i];
        continue;
      }
      const double error = UlpError(y[i], std::exp(static_cast<double>(x[i])));
      ASSERT_LE(error, 1.0) << x[i] << " gives " << y[i];
      worst = std::max(worst, error);
    }
  });
  RecordProperty("worst_ulp_times_1000", static_cast<int>(worst * 1000));
}

TEST(Exp, SpecialValues) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> x(16, 0.0f), y(16);
  x = {0.0f,     -0.0f,   kInfinity, -kInfinity, 88.72283f, 88.72285f, -103.9f, -104.1f,
       -3.4e38f, 3.4e38f, 1e-40f,    -1e-40f,    -87.4f,    -100.0f,   1.0f,    -1.0f};
  DF_DYNAMIC_DISPATCH(ExpAll)(x.data(), x.size(), y.data());
  EXPECT_EQ(y[0], 1.0f);
  EXPECT_EQ(y[1], 1.0f);
  EXPECT_EQ(y[2], kInfinity);
  EXPECT_EQ(y[3], 0.0f);
  EXPECT_LT(y[4], kInfinity);
  EXPECT_EQ(y[5], kInfinity);
  EXPECT_GT(y[6], 0.0f);
  EXPECT_EQ(y[7], 0.0f);
  EXPECT_EQ(y[8], 0.0f);
  EXPECT_EQ(y[9], kInfinity);
  EXPECT_EQ(y[10], 1.0f);
  EXPECT_EQ(y[11], 1.0f);
}

TEST(Load, Bf16RoundsAsTheScalarType) {
  ForFloats(65521, [&](const std::vector<float>& x) {
    std::vector<bf16> y(x.size());
    DF_DYNAMIC_DISPATCH(ToBf16)(x.data(), x.size(), y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      // A denormal number may become 0 of its sign.
      const bool flushed = std::fpclassify(x[i]) == FP_SUBNORMAL && (y[i].bits & 0x7fff) == 0;
      if (!flushed || std::signbit(x[i]) != (y[i].bits >> 15)) {
        ASSERT_EQ(y[i].bits, bf16(x[i]).bits) << x[i];
      }
    }
  });
}

TEST(Load, Bf16ToFloatIsExact) {
  std::vector<bf16> x(65536);
  for (size_t i = 0; i < x.size(); ++i) x[i].bits = static_cast<uint16_t>(i);
  std::vector<float> y(x.size());
  DF_DYNAMIC_DISPATCH(FromBf16)(x.data(), x.size(), y.data());
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(y[i]), static_cast<uint32_t>(i) << 16);
  }
}

}  // namespace
}  // namespace denseformer
#endif  // HWY_ONCE
