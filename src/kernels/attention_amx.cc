// Attention of one bf16 head on AMX tiles, forward; sizes are padded to multiples of 32.
//
// For 32 rows at a time, with their whole rows of scores in cache:
//   s = q k^T, p = 2^(s c - max), out = p v / sum(p), c = log2(e) / sqrt(head_size)
// p is rounded to bf16 for the product; its sum is taken before, in fp32.
#include "kernels/attention_amx.h"

#include <cmath>
#include <numbers>

#include "kernels/attention_head.h"
#include "tensor/scratch.h"

DF_BEGIN_AVX512_BF16
namespace denseformer {
namespace {

struct RowSum {
  float max;  // of s c
  float sum;  // of 2^(s c - max)
};

// p = 2^(s c - max) of one row with `count` scores, in bf16, zeros up to a multiple of 32; vectors
// of 32 are kTileElements apart. `mask` multiplies what is stored (null: ones).
inline RowSum SoftmaxRow(const float* s, size_t count, float c, const float* mask, bf16* p) {
  const size_t whole = (count - 1) / kBlock * kBlock;
  const __mmask16 low = LowLanes(count - whole);
  const __mmask16 high = count - whole > 16 ? LowLanes(count - whole - 16) : __mmask16{0};
  const __m512 none = _mm512_set1_ps(-HUGE_VALF);
  __m512 max0 = _mm512_mask_loadu_ps(none, low, s + whole);
  __m512 max1 = _mm512_mask_loadu_ps(none, high, s + whole + 16);
  for (size_t j = 0; j < whole; j += kBlock) {
    max0 = _mm512_max_ps(max0, _mm512_loadu_ps(s + j));
    max1 = _mm512_max_ps(max1, _mm512_loadu_ps(s + j + 16));
  }
  const float max = _mm512_reduce_max_ps(_mm512_max_ps(max0, max1)) * c;
  const __m512 shift = _mm512_set1_ps(max), factor = _mm512_set1_ps(c);
  __m512 sum0 = _mm512_setzero_ps(), sum1 = sum0;
  const auto block = [&](size_t j, __mmask16 mask0, __mmask16 mask1) {
    __m512 p0 = Exp2(_mm512_fmsub_ps(_mm512_loadu_ps(s + j), factor, shift));
    __m512 p1 = Exp2(_mm512_fmsub_ps(_mm512_loadu_ps(s + j + 16), factor, shift));
    p0 = _mm512_maskz_mov_ps(mask0, p0);
    p1 = _mm512_maskz_mov_ps(mask1, p1);
    sum0 = _mm512_add_ps(sum0, p0);
    sum1 = _mm512_add_ps(sum1, p1);
    if (mask != nullptr) {
      p0 = _mm512_mul_ps(p0, _mm512_maskz_loadu_ps(mask0, mask + j));
      p1 = _mm512_mul_ps(p1, _mm512_maskz_loadu_ps(mask1, mask + j + 16));
    }
    _mm512_storeu_si512(p + j / kBlock * kTileElements, ToBf16(p0, p1));
  };
  for (size_t j = 0; j < whole; j += kBlock) block(j, 0xffff, 0xffff);
  block(whole, low, high);
  return {max, _mm512_reduce_add_ps(_mm512_add_ps(sum0, sum1))};
}

}  // namespace

bool AttentionHeadForwardAmx(const AttentionHead<bf16>& head, bf16* out, float* lse) {
  const Padded size(head.length, head.head_size);
  const size_t stride = static_cast<size_t>(head.stride);
  const size_t out_stride = static_cast<size_t>(head.out_stride);
  const size_t score_stride = size.rows + 16;
  bf16 *rows, *queries, *keys, *values, *p;
  float *scores, *sums, *inverses, *mask;
  const auto place = [&](ScratchPlan plan) {
    rows = plan.Take<bf16>(size.rows * size.cols);
    queries = plan.Take<bf16>(size.rows * size.cols);
    keys = plan.Take<bf16>(size.rows * size.cols);
    values = plan.Take<bf16>(size.rows * size.cols);
    p = plan.Take<bf16>(kBlock * size.rows);
    scores = plan.Take<float>(kBlock * score_stride);
    sums = plan.Take<float>(kBlock * size.cols);
    inverses = plan.Take<float>(kBlock);
    mask = plan.Take<float>(size.rows);
    return plan.used();
  };
  place(ScratchPlan(ThreadScratch(place(ScratchPlan()))));
  const auto pack = [&](const bf16* from, bf16* to) {
    return amx::PackPadded(from, stride, size.length, size.head_size, size.rows, size.cols, to);
  };
  bool finite = pack(head.q, queries) && pack(head.k, rows);
  amx::PackTransposedRight(rows, size.rows, size.cols, keys);
  finite = finite && pack(head.v, rows);
  if (!finite) return false;
  amx::PackRight(rows, size.rows, size.cols, values);

  const amx::TileScope tiles;
  const float c = static_cast<float>(std::numbers::log2e / std::sqrt(double(size.head_size)));
  const size_t key_step = size.cols / 32 * kTileElements, p_second = size.blocks * kTileElements;
  for (size_t block = 0; block < size.blocks; ++block) {
    const size_t first = block * kBlock;
    const amx::LeftTiles q{queries + first * size.cols, 16 * size.cols, size.cols, 32};
    for (size_t key = 0; key <= block; ++key) {
      amx::Multiply(q, {keys + 2 * key * key_step, key_step, kTileElements}, size.cols / 32, false,
                    scores + key * kBlock, score_stride);
    }
    const size_t count = std::min(kBlock, size.length - first);
    for (size_t row = 0; row < count; ++row) {
      const size_t seen = first + row + 1;
      const bool dropout = head.dropout.enabled();
      if (dropout) {
        FillDropoutScales(head.dropout, head.dropout_index + (seen - 1) * size.length,
                          static_cast<int64_t>(seen), mask);
      }
      const RowSum sum = SoftmaxRow(scores + row * score_stride, seen, c, dropout ? mask : nullptr,
                                    p + row / 16 * p_second + row % 16 * 32);
      inverses[row] = 1.0f / sum.sum;
      if (lse != nullptr) {
        lse[first + row] =
            static_cast<float>((sum.max + std::log2(double(sum.sum))) / std::numbers::log2e);
      }
    }
    for (size_t col = 0; col < size.cols; col += 32) {
      amx::Multiply(
          {p, p_second, 32, kTileElements},
          {values + col / 16 * kTileElements, kTileElements, size.cols / 16 * kTileElements},
          block + 1, false, sums + col, size.cols);
    }
    amx::StoreRows(sums, size.cols, count, size.head_size, inverses, 1, out + first * out_stride,
                   out_stride);
  }
  return true;
}

}  // namespace denseformer
DF_END_AVX512_BF16
