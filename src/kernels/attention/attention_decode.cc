// Attention of new tokens against a cache. A few tokens of a sequence go one by one, which costs
// one read of its keys and values each; many go through the kernel of whole sequences.
#include "kernels/attention/attention_decode.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "kernels/attention/attention_head.h"
#include "kernels/simd.h"
#include "tensor/scratch.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_decode.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on
#include "kernels/attention/attention_row-inl.h"
#include "kernels/load-inl.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// out [size] = sum over j of weights[j] * rows [count, size].
template <class E>
void WeightedSum(const float* weights, const E* rows, size_t count, size_t size, float* out) {
  const TileTag d;
  size_t i = 0;
  for (; i + 4 * kTileLanes <= size; i += 4 * kTileLanes) {
    TileVec sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
    const E* row = rows + i;
    for (size_t j = 0; j < count; ++j, row += size) {
      const TileVec weight = hn::Set(d, weights[j]);
      sum0 = hn::MulAdd(weight, LoadF32(d, row), sum0);
      sum1 = hn::MulAdd(weight, LoadF32(d, row + kTileLanes), sum1);
      sum2 = hn::MulAdd(weight, LoadF32(d, row + 2 * kTileLanes), sum2);
      sum3 = hn::MulAdd(weight, LoadF32(d, row + 3 * kTileLanes), sum3);
    }
    hn::StoreU(sum0, d, out + i);
    hn::StoreU(sum1, d, out + i + kTileLanes);
    hn::StoreU(sum2, d, out + i + 2 * kTileLanes);
    hn::StoreU(sum3, d, out + i + 3 * kTileLanes);
  }
  for (; i + kTileLanes <= size; i += kTileLanes) {
    TileVec sum = hn::Zero(d);
    for (size_t j = 0; j < count; ++j) {
      sum = hn::MulAdd(hn::Set(d, weights[j]), LoadF32(d, rows + j * size + i), sum);
    }
    hn::StoreU(sum, d, out + i);
  }
  for (; i < size; ++i) {
    out[i] = 0;
    for (size_t j = 0; j < count; ++j) {
      out[i] += weights[j] * static_cast<float>(rows[j * size + i]);
    }
  }
}

// Attention of one token to the first `count` rows of its cache.
template <class E>
void Row(const E* q, const E* keys, const E* values, size_t count, size_t size, E* out) {
  float *query, *scores, *sums;
  const auto place = [&](ScratchPlan plan) {
    query = plan.Take<float>(size);
    scores = plan.Take<float>(count + kTileLanes);
    sums = plan.Take<float>(size);
    return plan.used();
  };
  place(ScratchPlan(ThreadScratch(place(ScratchPlan()))));
  const float scale = 1.0f / std::sqrt(static_cast<float>(size));
  for (size_t i = 0; i < size; ++i) query[i] = static_cast<float>(q[i]) * scale;
  for (size_t j = 0; j < count; ++j) scores[j] = Dot(keys + j * size, query, size);
  float max, sum;
  SoftmaxRow(scores, count, count, &max, &sum);
  WeightedSum(scores, values, count, size, sums);
  const float inverse = 1.0f / sum;
  for (size_t i = 0; i < size; ++i) out[i] = static_cast<E>(sums[i] * inverse);
}

}  // namespace

void RowF32(const float* q, const float* keys, const float* values, size_t count, size_t size,
            float* out) {
  Row(q, keys, values, count, size, out);
}
void RowBF16(const bf16* q, const bf16* keys, const bf16* values, size_t count, size_t size,
             bf16* out) {
  Row(q, keys, values, count, size, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace denseformer {

HWY_EXPORT(RowF32);
HWY_EXPORT(RowBF16);

namespace {

// From this many new tokens on, packing the cache once for all of them pays.
constexpr int64_t kBlockTokens = 8;

void RunRow(const float* q, const float* keys, const float* values, size_t count, size_t size,
            float* out) {
  DF_DYNAMIC_DISPATCH(RowF32)(q, keys, values, count, size, out);
}
void RunRow(const bf16* q, const bf16* keys, const bf16* values, size_t count, size_t size,
            bf16* out) {
  DF_DYNAMIC_DISPATCH(RowBF16)(q, keys, values, count, size, out);
}

// One head of one sequence.
template <class E>
void DecodeHead(const E* qkv, int64_t width, int64_t head_size, const DecodeQuery& query,
                int64_t head, E* out) {
  const int64_t capacity = query.keys.shape()[1], stride = 3 * width;
  E* const keys = query.keys.As<E>() + head * capacity * head_size;
  E* const values = query.values.As<E>() + head * capacity * head_size;
  const E* const q = qkv + query.row * stride + head * head_size;
  E* const to = out + query.row * width + head * head_size;
  for (int64_t i = 0; i < query.count; ++i) {
    const E* const k = q + i * stride + width;
    const int64_t at = (query.start + i) * head_size;
    std::copy(k, k + head_size, keys + at);
    std::copy(k + width, k + width + head_size, values + at);
  }
  if (query.count >= kBlockTokens) {
    RunAttentionHead(AttentionHead<E>{.q = q,
                                      .k = keys,
                                      .v = values,
                                      .stride = stride,
                                      .kv_stride = head_size,
                                      .out_stride = width,
                                      .length = query.count,
                                      .start = query.start,
                                      .head_size = head_size,
                                      .dropout = {},
                                      .dropout_index = 0},
                     to, nullptr);
    return;
  }
  for (int64_t i = 0; i < query.count; ++i) {
    RunRow(q + i * stride, keys, values, static_cast<size_t>(query.start + i + 1),
           static_cast<size_t>(head_size), to + i * width);
  }
}

template <class E>
void Decode(const Tensor& qkv, int64_t heads, std::span<const DecodeQuery> queries,
            const Tensor& out) {
  const int64_t width = qkv.cols() / 3, count = static_cast<int64_t>(queries.size());
  // Heads outside, sequences inside: every thread gets a share of the long ones.
  ParallelFor(heads * count, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t n = begin; n < end; ++n) {
      DecodeHead(qkv.As<E>(), width, width / heads, queries[static_cast<size_t>(n % count)],
                 n / count, out.As<E>());
    }
  });
}

}  // namespace

void AttentionDecode(const Tensor& qkv, int64_t heads, std::span<const DecodeQuery> queries,
                     const Tensor& out) {
  const int64_t width = qkv.cols() / 3;
  DF_CHECK_MSG(heads > 0 && qkv.cols() % (3 * heads) == 0, "qkv is {}, with {} heads",
               qkv.shape().ToString(), heads);
  DF_CHECK(out.dtype() == qkv.dtype() && out.count() == qkv.rows() * width);
  for (const DecodeQuery& query : queries) {
    for (const Tensor* cache : {&query.keys, &query.values}) {
      const Shape& shape = cache->shape();
      DF_CHECK_MSG(cache->dtype() == qkv.dtype() && shape.rank() == 3 && shape[0] == heads &&
                       shape[1] >= query.start + query.count && shape[2] == width / heads,
                   "cache is {}, for {} + {} tokens", shape.ToString(), query.start, query.count);
    }
    DF_CHECK(query.start >= 0 && query.count >= 0 && query.row >= 0 &&
             query.row + query.count <= qkv.rows());
  }
  if (qkv.dtype() == DType::kF32) {
    Decode<float>(qkv, heads, queries, out);
  } else {
    Decode<bf16>(qkv, heads, queries, out);
  }
}

}  // namespace denseformer
#endif  // HWY_ONCE
