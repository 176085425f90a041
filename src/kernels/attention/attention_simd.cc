// Attention of one head by Highway, for fp32 and bf16, any length and head size.
//
// k (and v in the backward pass) is transposed once per head; then blocks of rows go through
//   s = q k^T / sqrt(head_size), p = softmax(s), out = p v                        (forward)
//   dp = dout v^T, ds = p (dp - rowsum(dout out)), dq = ds k, dk += ds^T q, dv += p^T dout
// with the whole rows of s in cache. Tiles above the diagonal are skipped. Products run over groups
// of kTileRows rows and, in each, over the columns that any row of the group sees; p is 0 where a
// row does not. 0 times infinity would leak the future into the past there, so where an operand is
// not finite each row goes alone.
#include <cmath>
#include <cstddef>

#include "kernels/attention/attention_head.h"
#include "kernels/simd.h"
#include "tensor/scratch.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_simd.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on
#include "kernels/attention/attention_pack-inl.h"
#include "kernels/attention/attention_row-inl.h"
#include "kernels/exp-inl.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// The padded sizes of a head.
struct Padded {
  size_t length;
  size_t head_size;
  size_t cols;    // of a packed row
  size_t keys;    // columns of the scores
  size_t rows;    // rows of the scores: a block
  size_t stride;  // between rows of the scores; not a power of 2, which would crowd few cache sets

  template <class E>
  explicit Padded(const AttentionHead<E>& head)
      : length(static_cast<size_t>(head.length)), head_size(static_cast<size_t>(head.head_size)) {
    constexpr size_t kMostRows = 48, kMostScores = 128 * 1024;
    cols = RoundUp(head_size, kTileCols);
    keys = RoundUp(length, kTileCols);
    stride = keys + 16;
    rows = kMostRows;
    while (rows > kTileRows && rows * stride > kMostScores) rows /= 2;
    rows = RoundUp(rows, kTileRows);
  }
  size_t all_rows() const { return RoundUp(length, kTileRows); }
};

// scores [rows, ...] = a [rows, head_size] times the transposed panels, on and below the diagonal;
// row 0 is row `first` of the sequence.
void Scores(const Padded& size, const float* a, const float* panels, size_t first, size_t rows,
            float* scores) {
  for (size_t panel = 0; panel * kTileCols < first + rows; ++panel) {
    const size_t column = panel * kTileCols;
    for (size_t row = 0; row < rows; row += kTileRows) {
      if (column >= first + row + kTileRows) continue;
      TileProduct<kTileRows, TileA::kRowMajor, TileC::kSet>(
          a + row * size.cols, size.cols, panels + column * size.head_size, kTileCols,
          size.head_size, scores + row * size.stride + column, size.stride, kTileCols);
    }
  }
}

// c [rows, cols] = p b, where row i of p (row first + i of the sequence) sees first + i + 1 rows of
// b.
void CausalProduct(const Padded& size, const float* p, const float* b, bool b_finite, size_t first,
                   size_t rows, float* c) {
  if (b_finite) {
    for (size_t row = 0; row < rows; row += kTileRows) {
      TileProduct<kTileRows, TileA::kRowMajor, TileC::kSet>(
          p + row * size.stride, size.stride, b, size.cols, first + std::min(row + kTileRows, rows),
          c + row * size.cols, size.cols, size.cols);
    }
    return;
  }
  for (size_t row = 0; row < rows; ++row) {
    TileProduct<1, TileA::kRowMajor, TileC::kSet>(p + row * size.stride, size.stride, b, size.cols,
                                                  first + row + 1, c + row * size.cols, size.cols,
                                                  size.cols);
  }
}

// c [first + rows, cols] += p^T b [rows, cols].
void CausalTransposedProduct(const Padded& size, const float* p, const float* b, bool b_finite,
                             size_t first, size_t rows, float* c) {
  const size_t step = b_finite ? kTileRows : 1;
  for (size_t column = 0; column < first + rows; column += step) {
    const size_t skip = column > first ? column - first : 0;
    const auto product = b_finite ? &TileProduct<kTileRows, TileA::kColumnMajor, TileC::kAdd>
                                  : &TileProduct<1, TileA::kColumnMajor, TileC::kAdd>;
    product(p + skip * size.stride + column, size.stride, b + skip * size.cols, size.cols,
            rows - skip, c + column * size.cols, size.cols, size.cols);
  }
}

void MultiplyRow(const float* factors, size_t count, float* row) {
  for (size_t j = 0; j < count; ++j) row[j] *= factors[j];
}

template <class E>
void Forward(const AttentionHead<E>& head, E* out, float* lse) {
  const Padded size(head);
  const size_t stride = static_cast<size_t>(head.stride);
  const size_t out_stride = static_cast<size_t>(head.out_stride);
  float *keys, *values, *queries, *scores, *sums, *inverses, *mask;
  const auto place = [&](ScratchPlan plan) {
    keys = plan.Take<float>(size.keys * size.head_size);
    values = plan.Take<float>(size.all_rows() * size.cols);
    queries = plan.Take<float>(size.rows * size.cols);
    scores = plan.Take<float>(size.rows * size.stride);
    sums = plan.Take<float>(size.rows * size.cols);
    inverses = plan.Take<float>(size.rows);
    mask = plan.Take<float>(size.keys);
    return plan.used();
  };
  place(ScratchPlan(ThreadScratch(place(ScratchPlan()))));

  PackTransposed(head.k, stride, size.length, size.head_size, size.keys, keys);
  const bool finite = PackRows(head.v, stride, size.length, size.head_size, 1.0f, size.all_rows(),
                               size.cols, values);
  const float scale = 1.0f / std::sqrt(static_cast<float>(size.head_size));
  for (size_t first = 0; first < size.length; first += size.rows) {
    const size_t rows = std::min(size.rows, size.length - first);
    PackRows(head.q + first * stride, stride, rows, size.head_size, scale, size.rows, size.cols,
             queries);
    Scores(size, queries, keys, first, rows, scores);
    for (size_t row = 0; row < rows; ++row) {
      const size_t count = first + row + 1;
      float max, sum;
      float* const p = scores + row * size.stride;
      SoftmaxRow(p, count, first + RoundUp(row + 1, kTileRows), &max, &sum);
      inverses[row] = 1.0f / sum;
      if (lse != nullptr) {
        lse[first + row] = static_cast<float>(max + std::log(static_cast<double>(sum)));
      }
      if (head.dropout.enabled()) {
        head.dropout.FillScales(head.dropout_index + (count - 1) * size.length,
                                static_cast<int64_t>(count), mask);
        MultiplyRow(mask, count, p);
      }
    }
    CausalProduct(size, scores, values, finite, first, rows, sums);
    UnpackRows(sums, size.cols, rows, size.head_size, inverses, 1, out + first * out_stride,
               out_stride);
  }
}

// From rows of scores s and of dp: ds = p (dp * mask - delta) into dp, p * mask into s, where
// p = exp(s - lse); both 0 from `count` to `padded`. `mask` null: ones.
void GradientRow(float lse, float delta, const float* mask, size_t count, size_t padded, float* s,
                 float* dp) {
  const TileTag d;
  const TileVec shift = hn::Set(d, lse), offset = hn::Set(d, delta);
  for (size_t j = 0; j < count; j += kTileLanes) {
    const TileVec p = Exp(d, hn::Sub(hn::LoadU(d, s + j), shift));
    TileVec dropped = p, gradient = hn::LoadU(d, dp + j);
    if (mask != nullptr) {
      const TileVec factor = hn::LoadU(d, mask + j);
      dropped = hn::Mul(p, factor);
      gradient = hn::Mul(gradient, factor);
    }
    hn::StoreU(dropped, d, s + j);
    hn::StoreU(hn::Mul(p, hn::Sub(gradient, offset)), d, dp + j);
  }
  const size_t end = std::max(RoundUp(count, kTileLanes), padded);
  std::fill(s + count, s + end, 0.0f);
  std::fill(dp + count, dp + end, 0.0f);
}

template <class E>
void Backward(const AttentionHead<E>& head, const AttentionHeadGradients<E>& gradients) {
  const Padded size(head);
  const size_t stride = static_cast<size_t>(head.stride);
  const size_t out_stride = static_cast<size_t>(head.out_stride);
  float *keys_t, *values_t, *keys, *dkeys, *dvalues, *queries, *douts, *p, *ds, *dqueries, *mask;
  const auto place = [&](ScratchPlan plan) {
    keys_t = plan.Take<float>(size.keys * size.head_size);
    values_t = plan.Take<float>(size.keys * size.head_size);
    keys = plan.Take<float>(size.all_rows() * size.cols);
    dkeys = plan.Take<float>(size.all_rows() * size.cols);
    dvalues = plan.Take<float>(size.all_rows() * size.cols);
    queries = plan.Take<float>(size.rows * size.cols);
    douts = plan.Take<float>(size.rows * size.cols);
    p = plan.Take<float>(size.rows * size.stride);
    ds = plan.Take<float>(size.rows * size.stride);
    dqueries = plan.Take<float>(size.rows * size.cols);
    mask = plan.Take<float>(size.keys);
    return plan.used();
  };
  place(ScratchPlan(ThreadScratch(place(ScratchPlan()))));

  PackTransposed(head.k, stride, size.length, size.head_size, size.keys, keys_t);
  PackTransposed(head.v, stride, size.length, size.head_size, size.keys, values_t);
  const bool finite_k =
      PackRows(head.k, stride, size.length, size.head_size, 1.0f, size.all_rows(), size.cols, keys);
  std::fill(dkeys, dkeys + size.all_rows() * size.cols, 0.0f);
  std::fill(dvalues, dvalues + size.all_rows() * size.cols, 0.0f);
  const float scale = 1.0f / std::sqrt(static_cast<float>(size.head_size)), one = 1.0f;
  for (size_t first = 0; first < size.length; first += size.rows) {
    const size_t rows = std::min(size.rows, size.length - first);
    const bool finite_q = PackRows(head.q + first * stride, stride, rows, size.head_size, scale,
                                   size.rows, size.cols, queries);
    const bool finite_dout = PackRows(gradients.dout + first * out_stride, out_stride, rows,
                                      size.head_size, 1.0f, size.rows, size.cols, douts);
    Scores(size, queries, keys_t, first, rows, p);
    Scores(size, douts, values_t, first, rows, ds);
    for (size_t row = 0; row < rows; ++row) {
      const size_t count = first + row + 1;
      if (head.dropout.enabled()) {
        head.dropout.FillScales(head.dropout_index + (count - 1) * size.length,
                                static_cast<int64_t>(count), mask);
      }
      const float delta =
          Dot(gradients.out + (first + row) * out_stride, douts + row * size.cols, size.head_size);
      GradientRow(gradients.lse[first + row], delta, head.dropout.enabled() ? mask : nullptr, count,
                  RoundUp(first + rows, kTileRows), p + row * size.stride, ds + row * size.stride);
    }
    CausalProduct(size, ds, keys, finite_k, first, rows, dqueries);
    UnpackRows(dqueries, size.cols, rows, size.head_size, &scale, 0, gradients.dq + first * stride,
               stride);
    CausalTransposedProduct(size, ds, queries, finite_q, first, rows, dkeys);
    CausalTransposedProduct(size, p, douts, finite_dout, first, rows, dvalues);
  }
  UnpackRows(dkeys, size.cols, size.length, size.head_size, &one, 0, gradients.dk, stride);
  UnpackRows(dvalues, size.cols, size.length, size.head_size, &one, 0, gradients.dv, stride);
}

}  // namespace

void ForwardF32(const AttentionHead<float>& head, float* out, float* lse) {
  Forward(head, out, lse);
}
void ForwardBF16(const AttentionHead<bf16>& head, bf16* out, float* lse) {
  Forward(head, out, lse);
}
void BackwardF32(const AttentionHead<float>& head, const AttentionHeadGradients<float>& gradients) {
  Backward(head, gradients);
}
void BackwardBF16(const AttentionHead<bf16>& head, const AttentionHeadGradients<bf16>& gradients) {
  Backward(head, gradients);
}

}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace denseformer {

HWY_EXPORT(ForwardF32);
HWY_EXPORT(ForwardBF16);
HWY_EXPORT(BackwardF32);
HWY_EXPORT(BackwardBF16);

void AttentionHeadForward(const AttentionHead<float>& head, float* out, float* lse) {
  DF_DYNAMIC_DISPATCH(ForwardF32)(head, out, lse);
}
void AttentionHeadForward(const AttentionHead<bf16>& head, bf16* out, float* lse) {
  DF_DYNAMIC_DISPATCH(ForwardBF16)(head, out, lse);
}
void AttentionHeadBackward(const AttentionHead<float>& head,
                           const AttentionHeadGradients<float>& gradients) {
  DF_DYNAMIC_DISPATCH(BackwardF32)(head, gradients);
}
void AttentionHeadBackward(const AttentionHead<bf16>& head,
                           const AttentionHeadGradients<bf16>& gradients) {
  DF_DYNAMIC_DISPATCH(BackwardBF16)(head, gradients);
}

}  // namespace denseformer
#endif  // HWY_ONCE
