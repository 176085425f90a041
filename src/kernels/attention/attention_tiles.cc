// Attention of one bf16 head on tiles, forward; sizes are padded to multiples of 32.
//
// For 32 rows at a time:
//   s = q k^T, p = 2^(s c - max), out = p v / sum(p), c = log2(e) / sqrt(head_size)
// p is rounded to bf16 for the matmul; its sum is taken before, in fp32. The scores of up to
// kChunk keys are in cache at a time. max is the largest so far: where a chunk has a larger one,
// the sums of the chunks before are multiplied by 2^(old max - max).
#include "kernels/attention/attention_tiles.h"

#include <cmath>
#include <numbers>

#include "tensor/scratch.h"

DF_BEGIN_AVX512_BF16
namespace denseformer {
namespace {

// Keys whose scores are in cache at a time, and the distance of their rows.
constexpr size_t kChunk = 512, kScoreStride = kChunk + 16;

// The mask of the lanes of two vectors that hold the last 1..32 of `count` elements.
struct LastLanes {
  size_t whole;  // elements before them, a multiple of 32
  __mmask16 low, high;

  explicit LastLanes(size_t count) : whole((count - 1) / kBlock * kBlock) {
    const int64_t rest = static_cast<int64_t>(count - whole);
    low = FirstLanes(rest);
    high = rest > 16 ? FirstLanes(rest - 16) : __mmask16{0};
  }
};

float Max(const float* s, size_t count) {
  const LastLanes last(count);
  const __m512 none = _mm512_set1_ps(-HUGE_VALF);
  __m512 max0 = _mm512_mask_loadu_ps(none, last.low, s + last.whole);
  __m512 max1 = _mm512_mask_loadu_ps(none, last.high, s + last.whole + 16);
  for (size_t j = 0; j < last.whole; j += kBlock) {
    max0 = _mm512_max_ps(max0, _mm512_loadu_ps(s + j));
    max1 = _mm512_max_ps(max1, _mm512_loadu_ps(s + j + 16));
  }
  return _mm512_reduce_max_ps(_mm512_max_ps(max0, max1));
}

// p = 2^(s c - max) of one row with `count` scores, in bf16, zeros up to `padded`, a multiple of
// 32; vectors of 32 are kTileElements apart. `mask` multiplies what is stored (null: ones). Gives
// the sum of p in 16 parts.
inline __m512 Probabilities(const float* s, size_t count, size_t padded, float c, float max,
                            const float* mask, bf16* p) {
  const LastLanes last(count);
  const __m512 shift = _mm512_set1_ps(max), factor = _mm512_set1_ps(c);
  __m512 sum0 = _mm512_setzero_ps(), sum1 = sum0;
  const auto block = [&](size_t j, __mmask16 mask0, __mmask16 mask1) DF_AVX512_BF16_LAMBDA {
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
  for (size_t j = 0; j < last.whole; j += kBlock) block(j, 0xffff, 0xffff);
  block(last.whole, last.low, last.high);
  for (size_t j = last.whole + kBlock; j < padded; j += kBlock) {
    _mm512_storeu_si512(p + j / kBlock * kTileElements, _mm512_setzero_si512());
  }
  return _mm512_add_ps(sum0, sum1);
}

struct Forward {
  const AttentionHead<bf16>& head;
  Padded size;
  TileProducts products;
  bf16* buffer;         // k, then v, before they are packed
  bf16* queries;        // left operand q
  bf16 *keys, *values;  // right operands k^T, v
  bf16* p;              // left operand p of one block and chunk: two blocks of 16 rows, a tile for
                        // every 32 keys
  float* scores;        // [32, kScoreStride]
  float* sums;          // [32, cols]: p v
  float* maxima;        // [32]: largest s c
  float* totals;        // [32]: sum of p
  float* inverses;      // [32]: 1 / totals
  float* mask;          // [kChunk]: dropout

  explicit Forward(const AttentionHead<bf16>& head_in) : head(head_in), size(head) {
    ScratchPlan measure;
    Place(measure);
    ScratchPlan plan(ThreadScratch(measure.used()));
    Place(plan);
  }

  void Place(ScratchPlan& plan) {
    buffer = plan.Take<bf16>(size.rows * size.cols);
    queries = plan.Take<bf16>(size.rows * size.cols);
    keys = plan.Take<bf16>(size.rows * size.cols);
    values = plan.Take<bf16>(size.rows * size.cols);
    p = plan.Take<bf16>(kBlock * kChunk);
    scores = plan.Take<float>(kBlock * kScoreStride);
    sums = plan.Take<float>(kBlock * size.cols);
    maxima = plan.Take<float>(kBlock);
    totals = plan.Take<float>(kBlock);
    inverses = plan.Take<float>(kBlock);
    mask = plan.Take<float>(kChunk);
  }

  bool Pack();
  void RaiseMaxima(size_t first, size_t count, size_t key);
  void Softmax(size_t first, size_t count, size_t key, size_t end);
  void Block(size_t block, bf16* out, float* lse);
};

// Packs all operands; false where a value is not finite.
bool Forward::Pack() {
  const auto pack = [&](const bf16* from, bf16* to) {
    return amx::PackPadded(from, static_cast<size_t>(head.stride), size.length, size.head_size,
                           size.rows, size.cols, to);
  };
  if (!pack(head.q, queries)) return false;
  if (!pack(head.k, buffer)) return false;
  amx::PackTransposedRight(buffer, size.rows, size.cols, keys);
  if (!pack(head.v, buffer)) return false;
  amx::PackRight(buffer, size.rows, size.cols, values);
  return true;
}

// The keys of the chunk from `key` on that a row sees.
size_t Seen(size_t row, size_t key) { return std::min(row + 1 - key, kChunk); }

// Updates the maxima by the scores of a chunk, and what was summed under the old ones.
void Forward::RaiseMaxima(size_t first, size_t count, size_t key) {
  const float c = static_cast<float>(std::numbers::log2e / std::sqrt(double(size.head_size)));
  for (size_t row = 0; row < count; ++row) {
    const float max = Max(scores + row * kScoreStride, Seen(first + row, key)) * c;
    if (key == 0) {
      maxima[row] = max;
      totals[row] = 0;
    } else if (max > maxima[row]) {
      const __m512 factor = Exp2(_mm512_set1_ps(maxima[row] - max));
      maxima[row] = max;
      totals[row] *= _mm512_cvtss_f32(factor);
      for (float* sum = sums + row * size.cols; sum < sums + (row + 1) * size.cols; sum += 16) {
        _mm512_storeu_ps(sum, _mm512_mul_ps(_mm512_loadu_ps(sum), factor));
      }
    }
  }
}

// The p of a block and the chunk of keys [key, end), and its part of the sums of the rows. One loop
// for each step: the rows are independent, and what a step waits for at the end of a row hides
// behind the next ones.
void Forward::Softmax(size_t first, size_t count, size_t key, size_t end) {
  const float c = static_cast<float>(std::numbers::log2e / std::sqrt(double(size.head_size)));
  RaiseMaxima(first, count, key);
  alignas(64) float parts[kBlock][16];
  for (size_t row = 0; row < count; ++row) {
    const size_t seen = Seen(first + row, key);
    if (head.dropout.enabled()) {
      head.dropout.FillScales(head.dropout_index + (first + row) * size.length + key,
                              static_cast<int64_t>(seen), mask);
    }
    bf16* const p_row = p + row / 16 * (kChunk / 32) * kTileElements + row % 16 * 32;
    const __m512 sum = Probabilities(scores + row * kScoreStride, seen, end - key, c, maxima[row],
                                     head.dropout.enabled() ? mask : nullptr, p_row);
    _mm512_store_ps(parts[row], sum);
  }
  for (size_t row = 0; row < count; ++row) {
    totals[row] += _mm512_reduce_add_ps(_mm512_load_ps(parts[row]));
  }
}

// 32 rows of out, and of lse where it is not null.
void Forward::Block(size_t block, bf16* out, float* lse) {
  const size_t first = block * kBlock, count = std::min(kBlock, size.length - first);
  const size_t padded = first + kBlock;  // keys
  const size_t key_step = size.cols / 32 * kTileElements, col_step = 2 * key_step;
  for (const bf16* rows : {head.q, head.k, head.v}) {
    FetchNext(head, rows, head.stride, first, count);
  }
  const amx::LeftTiles q{queries + first * size.cols, 16 * size.cols, size.cols, 32};
  for (size_t begin = 0; begin < padded; begin += kChunk) {
    const size_t end = std::min(padded, begin + kChunk);
    for (size_t key = begin; key < end; key += kBlock) {
      products.Multiply(q, {keys + key / 16 * key_step, key_step, kTileElements}, size.cols / 32,
                        false, scores + key - begin, kScoreStride);
    }
    Softmax(first, count, begin, end);
    for (size_t col = 0; col < size.cols; col += 32) {
      products.Multiply(
          {p, kChunk / 32 * kTileElements, 32, kTileElements},
          {values + begin / 32 * col_step + col / 16 * kTileElements, kTileElements, col_step},
          (end - begin) / kBlock, begin > 0, sums + col, size.cols);
    }
  }
  for (size_t row = 0; row < count; ++row) {
    inverses[row] = 1.0f / totals[row];
    if (lse != nullptr) {
      lse[first + row] =
          static_cast<float>(maxima[row] / std::numbers::log2e + double{std::log(totals[row])});
    }
  }
  const size_t stride = static_cast<size_t>(head.out_stride);
  amx::StoreRows(sums, size.cols, count, size.head_size, inverses, 1, out + first * stride, stride);
}

}  // namespace

bool AttentionHeadForwardTiles(const AttentionHead<bf16>& head, bf16* out, float* lse) {
  Forward pass(head);
  if (!pass.Pack()) return false;
  for (size_t block = 0; block < pass.size.blocks; ++block) pass.Block(block, out, lse);
  return true;
}

}  // namespace denseformer
DF_END_AVX512_BF16
