#include "kernels/tile_products.h"

#include <cstring>

#include "base/cpu.h"
#include "kernels/amx-inl.h"

DF_BEGIN_AVX512_BF16
namespace denseformer {
namespace {

// Rows of c whose sums, two vectors each, stay in registers.
constexpr size_t kRows = 8;

// Two neighboring elements.
HWY_INLINE int32_t LoadPair(const bf16* from) {
  int32_t pair;
  std::memcpy(&pair, from, sizeof(pair));
  return pair;
}

// c [kRows, 32] (+)= left right, where row r of left is at left + r * stride.
HWY_INLINE void MultiplyRows(const bf16* left, size_t stride, size_t left_step,
                             const amx::RightTiles& right, size_t steps, bool add, float* c,
                             size_t c_stride) {
  __m512 sum0[kRows], sum1[kRows];
  for (size_t r = 0; r < kRows; ++r) {
    sum0[r] = add ? _mm512_loadu_ps(c + r * c_stride) : _mm512_setzero_ps();
    sum1[r] = add ? _mm512_loadu_ps(c + r * c_stride + 16) : _mm512_setzero_ps();
  }
  const bf16* b = right.first;
  for (size_t step = 0; step < steps; ++step, left += left_step, b += right.step) {
    for (size_t pair = 0; pair < 16; ++pair) {
      const __m512bh b0 = (__m512bh)_mm512_loadu_si512(b + pair * 32);
      const __m512bh b1 = (__m512bh)_mm512_loadu_si512(b + right.second + pair * 32);
      for (size_t r = 0; r < kRows; ++r) {
        const __m512bh a = (__m512bh)_mm512_set1_epi32(LoadPair(left + r * stride + pair * 2));
        sum0[r] = _mm512_dpbf16_ps(sum0[r], a, b0);
        sum1[r] = _mm512_dpbf16_ps(sum1[r], a, b1);
      }
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    _mm512_storeu_ps(c + r * c_stride, sum0[r]);
    _mm512_storeu_ps(c + r * c_stride + 16, sum1[r]);
  }
}

void MultiplyByDotProducts(const amx::LeftTiles& left, const amx::RightTiles& right, size_t steps,
                           bool add, float* c, size_t c_stride) {
  for (size_t row = 0; row < 32; row += kRows) {
    const bf16* const a = left.first + row / 16 * left.second + row % 16 * left.stride;
    MultiplyRows(a, left.stride, left.step, right, steps, add, c + row * c_stride, c_stride);
  }
}

}  // namespace
}  // namespace denseformer
DF_END_AVX512_BF16

namespace denseformer {

TileProducts::TileProducts() : multiply_(&MultiplyByDotProducts) {
  if (!GetCpuFeatures().Has(CpuFeature::kAmxBf16)) return;
  tiles_.emplace();
  multiply_ = &amx::Multiply;
}

}  // namespace denseformer
