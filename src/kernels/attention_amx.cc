// Attention of one bf16 head on AMX tiles, forward; sizes are padded to multiples of 32.
//
// For 32 rows at a time, with their whole rows of scores in cache:
//   s = q k^T, p = 2^(s c - max), out = p v / sum(p), c = log2(e) / sqrt(head_size)
// p is rounded to bf16 for the product; its sum is taken before, in fp32.
#include "kernels/attention_amx.h"

#include <cmath>
#include <numbers>

#include "tensor/scratch.h"

DF_BEGIN_AVX512_BF16
namespace denseformer {
namespace {

struct RowSum {
  float max;  // of s c
  float sum;  // of 2^(s c - max)
};

// p = 2^(s c - max) of one row with `count` scores, in bf16, zeros up to `padded`, a multiple of
// 32; vectors of 32 are kTileElements apart. `mask` multiplies what is stored (null: ones).
inline RowSum SoftmaxRow(const float* s, size_t count, size_t padded, float c, const float* mask,
                         bf16* p) {
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
  for (size_t j = whole + kBlock; j < padded; j += kBlock) {
    _mm512_storeu_si512(p + j / kBlock * kTileElements, _mm512_setzero_si512());
  }
  return {max, _mm512_reduce_add_ps(_mm512_add_ps(sum0, sum1))};
}

struct Forward {
  const AttentionHead<bf16>& head;
  Padded size;
  bf16* buffer;         // k, then v, before they are packed
  bf16* queries;        // left operand q
  bf16 *keys, *values;  // right operands k^T, v
  bf16* p;              // left operand p of one block: two blocks of 16 rows, a tile for every
                        // 32 keys
  float* scores;        // [32, score_stride]
  float* sums;          // [32, cols]: p v
  float* inverses;      // [32]: 1 / sum of p
  float* mask;          // [keys]: dropout

  size_t score_stride() const { return size.keys + 16; }

  explicit Forward(const AttentionHead<bf16>& head_in) : head(head_in), size(head) {
    ScratchPlan measure;
    Place(measure);
    ScratchPlan plan(ThreadScratch(measure.used()));
    Place(plan);
  }

  void Place(ScratchPlan& plan) {
    buffer = plan.Take<bf16>(size.keys * size.cols);
    queries = plan.Take<bf16>(size.rows * size.cols);
    keys = plan.Take<bf16>(size.keys * size.cols);
    values = plan.Take<bf16>(size.keys * size.cols);
    p = plan.Take<bf16>(kBlock * size.keys);
    scores = plan.Take<float>(kBlock * score_stride());
    sums = plan.Take<float>(kBlock * size.cols);
    inverses = plan.Take<float>(kBlock);
    mask = plan.Take<float>(size.keys);
  }

  bool Pack();
  void Block(size_t block, bf16* out, float* lse);
};

// Packs all operands; false where a value is not finite.
bool Forward::Pack() {
  const auto pack = [&](const bf16* from, int64_t stride, int64_t rows, size_t padded, bf16* to) {
    return amx::PackPadded(from, static_cast<size_t>(stride), static_cast<size_t>(rows),
                           size.head_size, padded, size.cols, to);
  };
  const int64_t seen = head.start + head.length;
  if (!pack(head.q, head.stride, head.length, size.rows, queries)) return false;
  if (!pack(head.k, head.kv_stride, seen, size.keys, buffer)) return false;
  amx::PackTransposedRight(buffer, size.keys, size.cols, keys);
  if (!pack(head.v, head.kv_stride, seen, size.keys, buffer)) return false;
  amx::PackRight(buffer, size.keys, size.cols, values);
  return true;
}

// 32 rows of out, and of lse where it is not null.
void Forward::Block(size_t block, bf16* out, float* lse) {
  const size_t first = block * kBlock, count = std::min(kBlock, size.length - first);
  const size_t before = static_cast<size_t>(head.start) + first;  // keys that every row sees
  const size_t padded = RoundUpToBlock(static_cast<int64_t>(before + count));
  const size_t key_step = size.cols / 32 * kTileElements, col_step = 2 * key_step;
  const amx::LeftTiles q{queries + first * size.cols, 16 * size.cols, size.cols, 32};
  for (size_t key = 0; key < padded; key += kBlock) {
    amx::Multiply(q, {keys + key / 16 * key_step, key_step, kTileElements}, size.cols / 32, false,
                  scores + key, score_stride());
  }
  const float c = static_cast<float>(std::numbers::log2e / std::sqrt(double(size.head_size)));
  const size_t p_second = size.keys / 32 * kTileElements;
  const bool dropout = head.dropout.enabled();
  for (size_t row = 0; row < count; ++row) {
    const size_t seen = before + row + 1;
    if (dropout) {
      FillDropoutScales(head.dropout, head.dropout_index + (seen - 1) * size.length,
                        static_cast<int64_t>(seen), mask);
    }
    const RowSum sum =
        SoftmaxRow(scores + row * score_stride(), seen, padded, c, dropout ? mask : nullptr,
                   p + row / 16 * p_second + row % 16 * 32);
    inverses[row] = 1.0f / sum.sum;
    if (lse != nullptr) {
      lse[first + row] =
          static_cast<float>((sum.max + std::log2(double(sum.sum))) / std::numbers::log2e);
    }
  }
  for (size_t col = 0; col < size.cols; col += 32) {
    amx::Multiply({p, p_second, 32, kTileElements},
                  {values + col / 16 * kTileElements, kTileElements, col_step}, padded / kBlock,
                  false, sums + col, size.cols);
  }
  const size_t stride = static_cast<size_t>(head.out_stride);
  amx::StoreRows(sums, size.cols, count, size.head_size, inverses, 1, out + first * stride, stride);
}

}  // namespace

bool AttentionHeadForwardAmx(const AttentionHead<bf16>& head, bf16* out, float* lse) {
  Forward pass(head);
  if (!pass.Pack()) return false;
  const amx::TileScope tiles;
  for (size_t block = 0; block < pass.size.blocks; ++block) pass.Block(block, out, lse);
  return true;
}

}  // namespace denseformer
DF_END_AVX512_BF16
