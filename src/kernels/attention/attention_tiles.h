// What the forward and the backward pass of attention on tiles share.
#ifndef DENSEFORMER_KERNELS_ATTENTION_ATTENTION_TILES_H_
#define DENSEFORMER_KERNELS_ATTENTION_ATTENTION_TILES_H_

#include <immintrin.h>

#include <cstddef>

#include "kernels/amx-inl.h"
#include "kernels/amx.h"
#include "kernels/attention/attention_head.h"
#include "kernels/tile_products.h"

DF_BEGIN_AVX512_BF16
namespace denseformer {
namespace {

using amx::FirstLanes;
using amx::kTileElements;
using amx::ToBf16;

constexpr size_t kBlock = 32;

inline size_t RoundUpToBlock(int64_t value) {
  return (static_cast<size_t>(value) + kBlock - 1) / kBlock * kBlock;
}

struct Padded {
  size_t length;
  size_t head_size;
  size_t rows;    // length, padded
  size_t cols;    // head size, padded
  size_t blocks;  // of 32 rows

  explicit Padded(const AttentionHead<bf16>& head)
      : length(static_cast<size_t>(head.length)),
        head_size(static_cast<size_t>(head.head_size)),
        rows(RoundUpToBlock(head.length)),
        cols(RoundUpToBlock(head.head_size)),
        blocks(rows / kBlock) {}
};

// Fetches rows [first, first + count) of the next head into L2, where `head` has a next one: the
// lines of a head lie so far apart that no prefetcher follows, and the arithmetic leaves time for
// it. Always inlined: GCC takes a function that only fetches for one without effect.
HWY_INLINE void FetchNext(const AttentionHead<bf16>& head, const bf16* rows, int64_t stride,
                          size_t first, size_t count) {
  if (!head.more) return;
  for (size_t row = first; row < first + count; ++row) {
    const bf16* const next = rows + static_cast<int64_t>(row) * stride + head.head_size;
    for (int64_t i = 0; i < head.head_size; i += 32) {
      _mm_prefetch(reinterpret_cast<const char*>(next + i), _MM_HINT_T1);
    }
  }
}

// 2^y within 1 ulp for y <= 0; 0 far below, NaN for NaN. Degree 6 on [-1/2, 1/2], relative error
// 2^-26.
inline __m512 Exp2(__m512 y) {
  y = _mm512_max_ps(_mm512_set1_ps(-200.0f), y);  // the second operand where one is NaN
  const __m512 n = _mm512_roundscale_ps(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = _mm512_sub_ps(y, n);
  __m512 p = _mm512_set1_ps(0x1.41d334p-13f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.5f456ap-10f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.3b2dbcp-7f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.c6aed4p-5f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.ebfbdap-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.62e430p-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, n);
}

}  // namespace
}  // namespace denseformer
DF_END_AVX512_BF16

#endif  // DENSEFORMER_KERNELS_ATTENTION_ATTENTION_TILES_H_
