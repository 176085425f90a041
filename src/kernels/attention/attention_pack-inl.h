// Rows of a head (q, k, v or their gradients, strided, fp32 or bf16) as dense fp32 in scratch, in
// the two layouts that the tile products read.
#if defined(DENSEFORMER_KERNELS_ATTENTION_ATTENTION_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DENSEFORMER_KERNELS_ATTENTION_ATTENTION_PACK_INL_H_
#undef DENSEFORMER_KERNELS_ATTENTION_ATTENTION_PACK_INL_H_
#else
#define DENSEFORMER_KERNELS_ATTENTION_ATTENTION_PACK_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "kernels/load-inl.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {

// to [padded_rows, cols] = scale * from [rows, head_size], zeros around it. Returns whether all
// values are finite.
template <class E>
bool PackRows(const E* from, size_t stride, size_t rows, size_t head_size, float scale,
              size_t padded_rows, size_t cols, float* to) {
  namespace hn = hwy::HWY_NAMESPACE;
  const TileTag d;
  const TileVec factor = hn::Set(d, scale), zero = hn::Zero(d);
  // x * 0 is 0 for finite x, NaN for any other, and NaN stays.
  TileVec check = zero;
  float tail_check = 0;
  for (size_t row = 0; row < rows; ++row, from += stride, to += cols) {
    size_t i = 0;
    for (; i + kTileLanes <= head_size; i += kTileLanes) {
      const TileVec value = hn::Mul(LoadF32(d, from + i), factor);
      check = hn::MulAdd(value, zero, check);
      hn::StoreU(value, d, to + i);
    }
    for (; i < head_size; ++i) {
      to[i] = static_cast<float>(from[i]) * scale;
      tail_check += to[i] * 0.0f;
    }
    std::fill(to + i, to + cols, 0.0f);
  }
  std::fill(to, to + (padded_rows - rows) * cols, 0.0f);
  return hn::AllTrue(d, hn::Eq(check, zero)) && tail_check == 0;
}

#if HWY_TARGET != HWY_SCALAR
// Rows of y are kTileCols apart.
template <class E>
HWY_INLINE void Transpose4x4(const E* x, size_t stride, float* y) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::CappedTag<float, 4> d;
  static_assert(hn::MaxLanes(d) == 4 && kTileCols % 4 == 0);
  const auto x0 = LoadF32(d, x), x1 = LoadF32(d, x + stride);
  const auto x2 = LoadF32(d, x + 2 * stride), x3 = LoadF32(d, x + 3 * stride);
  const auto low02 = hn::InterleaveLower(d, x0, x2), low13 = hn::InterleaveLower(d, x1, x3);
  const auto high02 = hn::InterleaveUpper(d, x0, x2), high13 = hn::InterleaveUpper(d, x1, x3);
  hn::StoreU(hn::InterleaveLower(d, low02, low13), d, y);
  hn::StoreU(hn::InterleaveUpper(d, low02, low13), d, y + kTileCols);
  hn::StoreU(hn::InterleaveLower(d, high02, high13), d, y + 2 * kTileCols);
  hn::StoreU(hn::InterleaveUpper(d, high02, high13), d, y + 3 * kTileCols);
}
#endif

// The transpose in panels of kTileCols rows: to [padded_rows / kTileCols, head_size, kTileCols].
template <class E>
void PackTransposed(const E* from, size_t stride, size_t rows, size_t head_size, size_t padded_rows,
                    float* to) {
  const auto place = [&](size_t row, size_t i) {
    return to + (row / kTileCols * head_size + i) * kTileCols + row % kTileCols;
  };
  size_t row = 0;
#if HWY_TARGET != HWY_SCALAR
  const size_t whole_size = head_size / 4 * 4;
  for (; row + 4 <= rows; row += 4) {
    const E* const x = from + row * stride;
    for (size_t i = 0; i < whole_size; i += 4) Transpose4x4(x + i, stride, place(row, i));
    for (size_t i = whole_size; i < head_size; ++i) {
      for (size_t k = 0; k < 4; ++k) *place(row + k, i) = static_cast<float>(x[k * stride + i]);
    }
  }
#endif
  for (; row < padded_rows; ++row) {
    for (size_t i = 0; i < head_size; ++i) {
      *place(row, i) = row < rows ? static_cast<float>(from[row * stride + i]) : 0.0f;
    }
  }
}

// to [rows, head_size] = scale * from, whose rows are `cols` apart.
template <class E>
void UnpackRows(const float* from, size_t cols, size_t rows, size_t head_size, const float* scales,
                size_t scales_stride, E* to, size_t stride) {
  namespace hn = hwy::HWY_NAMESPACE;
  const TileTag d;
  for (size_t row = 0; row < rows; ++row, from += cols, to += stride) {
    const float scale = scales[row * scales_stride];
    size_t i = 0;
    for (; i + kTileLanes <= head_size; i += kTileLanes) {
      StoreF32(d, hn::Mul(hn::LoadU(d, from + i), hn::Set(d, scale)), to + i);
    }
    for (; i < head_size; ++i) to[i] = static_cast<E>(from[i] * scale);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#endif  // DENSEFORMER_KERNELS_ATTENTION_ATTENTION_PACK_INL_H_
