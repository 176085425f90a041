// Attention of one bf16 head on tiles, backward; sizes are padded to multiples of 32.
//
// For a chunk of rows, and in it 32 keys at a time, transposed, so that no sum runs along a vector:
//   s^T = k q^T, dp^T = v dout^T, p^T = 2^(s^T c - lse log2(e)), ds^T = p^T (dp^T - delta)
//   dv = p^T dout, dk = ds^T q / sqrt(head_size), dq^T += k^T ds^T / sqrt(head_size)
// with delta = rowsum(dout out) and c = log2(e) / sqrt(head_size). What belongs to a chunk stays in
// cache over all keys; dk and dv are summed from chunk to chunk. dq^T takes the ds^T of a group of
// blocks of keys at once. p and ds are rounded to bf16 for the matmuls; sums are fp32, in the
// order of the rows or keys whatever the chunks and groups are.
#include <cmath>
#include <numbers>

#include "kernels/attention/attention_tiles.h"
#include "tensor/scratch.h"

DF_BEGIN_AVX512_BF16
namespace denseformer {
namespace {

// Blocks of 32 rows of a chunk, and blocks of 32 keys whose ds^T is kept for one update of dq^T.
constexpr size_t kChunkBlocks = 8, kGroup = 8;
constexpr size_t kChunkRows = kChunkBlocks * kBlock;

// Stands for a log-sum-exp so large that every probability is 0.
constexpr float kNoProbability = 1e30f;

struct Backward {
  const AttentionHead<bf16>& head;
  const AttentionHeadGradients<bf16>& gradients;
  Padded size;
  TileProducts products;

  bf16 *keys, *values;        // left operands k, v
  bf16 *queries_t, *douts_t;  // right operands q^T, dout^T
  bf16 *queries, *douts;      // right operands q, dout
  bf16* keys_t;               // left operand k^T
  // Of one block of keys and a chunk: left operands p^T and ds^T, two blocks of 16 keys, each with
  // one tile for every 32 rows.
  bf16 *p, *ds;
  bf16* ds_right;          // right operand ds^T of group and chunk: one tile for every 16 rows
  float *scores, *dp;      // [32, 32]
  float* mask;             // [32, 32]: dropout, transposed as the scores
  float *shifts, *deltas;  // [rows]: lse log2(e), delta
  float *dkeys, *dvalues;  // [rows, cols]: dk sqrt(head_size), dv
  float* dqueries_t;       // [cols, kDqStride] of a chunk: dq^T sqrt(head_size)

  static constexpr size_t kDqStride = kChunkRows + 16;

  Backward(const AttentionHead<bf16>& head_in, const AttentionHeadGradients<bf16>& gradients_in)
      : head(head_in), gradients(gradients_in), size(head) {
    ScratchPlan measure;
    Place(measure);
    ScratchPlan plan(ThreadScratch(measure.used()));
    Place(plan);
  }

  void Place(ScratchPlan& plan) {
    for (bf16** piece : {&keys, &values, &queries_t, &douts_t, &queries, &douts, &keys_t}) {
      *piece = plan.Take<bf16>(size.rows * size.cols);
    }
    p = plan.Take<bf16>(kBlock * kChunkRows);
    ds = plan.Take<bf16>(kBlock * kChunkRows);
    ds_right = plan.Take<bf16>(kGroup * kBlock * kChunkRows);
    scores = plan.Take<float>(kBlock * kBlock);
    dp = plan.Take<float>(kBlock * kBlock);
    mask = plan.Take<float>(kBlock * kBlock);
    shifts = plan.Take<float>(size.rows);
    deltas = plan.Take<float>(size.rows);
    dkeys = plan.Take<float>(size.rows * size.cols);
    dvalues = plan.Take<float>(size.rows * size.cols);
    dqueries_t = plan.Take<float>(size.cols * kDqStride);
  }

  bool Pack();
  void FillMask(size_t key, size_t block);
  void Probabilities(size_t key, size_t block);
  void Fetch(size_t block) const;
  void KeyBlock(size_t key, size_t chunk, size_t end);
  void UpdateQueries(size_t first_key, size_t end_key, size_t chunk, size_t end);
  void Chunk(size_t chunk);
};

float Dot(const bf16* a, const bf16* b, size_t count) {
  __m512 sum = _mm512_setzero_ps();
  for (size_t i = 0; i < count; i += 16) {
    const __mmask16 lanes = FirstLanes(static_cast<int64_t>(count - i));
    const __m256i x = _mm256_maskz_loadu_epi16(lanes, a + i);
    const __m256i y = _mm256_maskz_loadu_epi16(lanes, b + i);
    sum = _mm512_fmadd_ps(amx::ToF32(x), amx::ToF32(y), sum);
  }
  return _mm512_reduce_add_ps(sum);
}

// Packs all operands; false where a value is not finite.
bool Backward::Pack() {
  const auto pack = [&](const bf16* from, int64_t stride, bf16* to) {
    return amx::PackPadded(from, static_cast<size_t>(stride), size.length, size.head_size,
                           size.rows, size.cols, to);
  };
  if (!pack(head.k, head.stride, keys)) return false;
  amx::PackTransposedRight(keys, size.rows, size.cols, queries_t);  // on the way to keys_t
  amx::PackTransposedLeft(queries_t, size.rows, size.cols, keys_t);
  if (!pack(head.q, head.stride, values)) return false;  // on the way to queries
  amx::PackTransposedRight(values, size.rows, size.cols, queries_t);
  amx::PackRight(values, size.rows, size.cols, queries);
  if (!pack(gradients.dout, head.out_stride, values)) return false;  // on the way to douts
  amx::PackTransposedRight(values, size.rows, size.cols, douts_t);
  amx::PackRight(values, size.rows, size.cols, douts);
  if (!pack(head.v, head.stride, values)) return false;
  for (size_t row = 0; row < size.length; ++row) {
    const size_t at = row * static_cast<size_t>(head.out_stride);
    deltas[row] = Dot(gradients.out + at, gradients.dout + at, size.head_size);
    shifts[row] = gradients.lse[row] * std::numbers::log2e_v<float>;
  }
  std::fill(deltas + size.length, deltas + size.rows, 0.0f);
  std::fill(shifts + size.length, shifts + size.rows, kNoProbability);
  return true;
}

void Backward::FillMask(size_t key, size_t block) {
  float row_mask[kBlock];
  for (size_t i = 0; i < kBlock; ++i) {
    const size_t row = block * kBlock + i;
    head.dropout.FillScales(head.dropout_index + row * size.length + key * kBlock, kBlock,
                            row_mask);
    for (size_t j = 0; j < kBlock; ++j) mask[j * kBlock + i] = row_mask[j];
  }
}

// From scores and dp of 32 keys x 32 rows: the tiles of p^T and ds^T.
void Backward::Probabilities(size_t key, size_t block) {
  const amx::RowPairing pairing;
  const float c = static_cast<float>(std::numbers::log2e / std::sqrt(double(size.head_size)));
  const __m512 factor = _mm512_set1_ps(c);
  const __m512 shift0 = _mm512_loadu_ps(shifts + block * kBlock);
  const __m512 shift1 = _mm512_loadu_ps(shifts + block * kBlock + 16);
  const __m512 delta0 = _mm512_loadu_ps(deltas + block * kBlock);
  const __m512 delta1 = _mm512_loadu_ps(deltas + block * kBlock + 16);
  const bool dropout = head.dropout.enabled();
  const size_t in_chunk = block % kChunkBlocks;
  bf16* const right = ds_right + 2 * (key % kGroup * kChunkBlocks + in_chunk) * kTileElements;
  for (size_t j = 0; j < kBlock; j += 2) {
    __m512i rounded[2];
    for (size_t k = 0; k < 2; ++k) {
      const size_t at = (j + k) * kBlock;
      // On the diagonal row i sees key j only where i >= j.
      const uint32_t seen = key == block ? ~uint32_t{0} << (j + k) : ~uint32_t{0};
      const __mmask16 seen0 = static_cast<__mmask16>(seen);
      const __mmask16 seen1 = static_cast<__mmask16>(seen >> 16);
      __m512 p0 = Exp2(_mm512_fmsub_ps(_mm512_loadu_ps(scores + at), factor, shift0));
      __m512 p1 = Exp2(_mm512_fmsub_ps(_mm512_loadu_ps(scores + at + 16), factor, shift1));
      p0 = _mm512_maskz_mov_ps(seen0, p0);
      p1 = _mm512_maskz_mov_ps(seen1, p1);
      __m512 dp0 = _mm512_loadu_ps(dp + at), dp1 = _mm512_loadu_ps(dp + at + 16);
      __m512 dropped0 = p0, dropped1 = p1;
      if (dropout) {
        const __m512 mask0 = _mm512_loadu_ps(mask + at), mask1 = _mm512_loadu_ps(mask + at + 16);
        dropped0 = _mm512_mul_ps(p0, mask0);
        dropped1 = _mm512_mul_ps(p1, mask1);
        dp0 = _mm512_mul_ps(dp0, mask0);
        dp1 = _mm512_mul_ps(dp1, mask1);
      }
      const __m512 ds0 = _mm512_mul_ps(p0, _mm512_sub_ps(dp0, delta0));
      const __m512 ds1 = _mm512_mul_ps(p1, _mm512_sub_ps(dp1, delta1));
      rounded[k] = ToBf16(ds0, ds1);
      const size_t tile =
          ((j + k) / 16 * kChunkBlocks + in_chunk) * kTileElements + (j + k) % 16 * 32;
      _mm512_storeu_si512(p + tile, ToBf16(dropped0, dropped1));
      _mm512_storeu_si512(ds + tile, rounded[k]);
    }
    bf16* const pair = right + j / 2 * 32;
    _mm512_storeu_si512(pair, pairing.Low(rounded[0], rounded[1]));
    _mm512_storeu_si512(pair + kTileElements, pairing.High(rounded[0], rounded[1]));
  }
}

// Rows of a block of the next head.
void Backward::Fetch(size_t block) const {
  const size_t first = block * kBlock, count = std::min(kBlock, size.length - first);
  for (const bf16* rows : {head.q, head.k, head.v}) {
    FetchNext(head, rows, head.stride, first, count);
  }
  for (const bf16* rows : {gradients.out, gradients.dout}) {
    FetchNext(head, rows, head.out_stride, first, count);
  }
}

// Adds what the blocks of rows [chunk, end) give to dk and dv of 32 keys, and stores them after the
// last chunk; leaves ds^T in ds_right.
void Backward::KeyBlock(size_t key, size_t chunk, size_t end) {
  const size_t first = key * kBlock, steps = size.cols / 32, begin = std::max(key, chunk);
  const amx::LeftTiles k{keys + first * size.cols, 16 * size.cols, size.cols, 32};
  const amx::LeftTiles v{values + first * size.cols, 16 * size.cols, size.cols, 32};
  const size_t row_tiles = steps * kTileElements;
  for (size_t block = begin; block < end; ++block) {
    products.Multiply(k, {queries_t + 2 * block * row_tiles, row_tiles, kTileElements}, steps,
                      false, scores, kBlock);
    products.Multiply(v, {douts_t + 2 * block * row_tiles, row_tiles, kTileElements}, steps, false,
                      dp, kBlock);
    if (head.dropout.enabled()) FillMask(key, block);
    Probabilities(key, block);
  }
  const size_t stride = static_cast<size_t>(head.stride),
               col_tiles = size.cols / 16 * kTileElements;
  const float scale = 1.0f / std::sqrt(static_cast<float>(size.head_size)), one = 1.0f;
  const auto product = [&](const bf16* left, const bf16* right, float* sums, const float& factor,
                           bf16* to) {
    sums += first * size.cols;
    for (size_t col = 0; col < size.cols; col += 32) {
      products.Multiply(
          {left + (begin - chunk) * kTileElements, kChunkBlocks * kTileElements, 32, kTileElements},
          {right + begin * col_tiles + col / 16 * kTileElements, kTileElements, col_tiles},
          end - begin, key < chunk, sums + col, size.cols);
    }
    if (end < size.blocks) return;
    amx::StoreRows(sums, size.cols, std::min(kBlock, size.length - first), size.head_size, &factor,
                   0, to + first * stride, stride);
  };
  product(p, douts, dvalues, one, gradients.dv);
  product(ds, queries, dkeys, scale, gradients.dk);
}

// dq^T += k^T ds^T over the blocks of keys [first_key, end_key), which begin a group, for the
// blocks of rows [chunk, end).
void Backward::UpdateQueries(size_t first_key, size_t end_key, size_t chunk, size_t end) {
  constexpr size_t kRightStep = 2 * kChunkBlocks * kTileElements;
  for (size_t block = std::max(first_key, chunk); block < end; ++block) {
    const size_t in_chunk = block - chunk, keys_end = std::min(end_key, block + 1);
    for (size_t col = 0; col < size.cols; col += 32) {
      products.Multiply({keys_t + (col / 16 * size.blocks + first_key) * kTileElements,
                         size.blocks * kTileElements, 32, kTileElements},
                        {ds_right + 2 * in_chunk * kTileElements, kTileElements, kRightStep},
                        keys_end - first_key, first_key > 0,
                        dqueries_t + col * kDqStride + in_chunk * kBlock, kDqStride);
    }
  }
}

// dq of a chunk that begins at block `chunk`, and its part of dk and dv.
void Backward::Chunk(size_t chunk) {
  const size_t end = std::min(size.blocks, chunk + kChunkBlocks);
  for (size_t block = chunk; block < end; ++block) Fetch(block);
  for (size_t first = 0; first < end; first += kGroup) {
    const size_t keys_end = std::min(end, first + kGroup);
    for (size_t key = first; key < keys_end; ++key) KeyBlock(key, chunk, end);
    UpdateQueries(first, keys_end, chunk, end);
  }
  const size_t row = chunk * kBlock, stride = static_cast<size_t>(head.stride);
  amx::StoreTransposed(dqueries_t, kDqStride, std::min(kChunkRows, size.length - row),
                       size.head_size, 1.0f / std::sqrt(static_cast<float>(size.head_size)),
                       gradients.dq + row * stride, stride);
}

}  // namespace

bool AttentionHeadBackwardTiles(const AttentionHead<bf16>& head,
                                const AttentionHeadGradients<bf16>& gradients) {
  Backward pass(head, gradients);
  if (!pass.Pack()) return false;
  for (size_t chunk = 0; chunk < pass.size.blocks; chunk += kChunkBlocks) pass.Chunk(chunk);
  return true;
}

}  // namespace denseformer
DF_END_AVX512_BF16
