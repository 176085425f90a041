// Attention of new tokens against a paged cache. Groups of kTileRows new tokens share each load of
// a page; a group whose tokens see different numbers of positions adds the last few token by token,
// so that no sum depends on the grouping.
#include "kernels/attention/attention_decode.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
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

#ifndef DENSEFORMER_KERNELS_ATTENTION_ATTENTION_DECODE_ONCE_
#define DENSEFORMER_KERNELS_ATTENTION_ATTENTION_DECODE_ONCE_
namespace denseformer {
namespace {

constexpr size_t kPage = static_cast<size_t>(kKvPageTokens);

// Rows of values are padded to whole vectors of every target.
constexpr size_t PaddedHead(size_t head_size) { return (head_size + 15) / 16 * 16; }

// One head of one sequence.
template <class E>
struct DecodeHead {
  const E* q;  // of the first new token; k and v are `width` and 2 * `width` elements later
  size_t width;
  size_t head_size;
  size_t head;
  size_t heads;
  const float* rotary;  // of the first new token
  size_t page_offset;
  std::byte* const* pages;
  size_t count;  // new tokens
  size_t start;
  E* out;  // rows `width` apart

  E* Keys(size_t page) const {
    return reinterpret_cast<E*>(pages[page] + page_offset) + head * head_size * kPage;
  }
  E* Values(size_t page) const {
    return reinterpret_cast<E*>(pages[page] + page_offset) + heads * head_size * kPage +
           head * PaddedHead(head_size) * kPage;
  }
};

}  // namespace
}  // namespace denseformer
#endif  // DENSEFORMER_KERNELS_ATTENTION_ATTENTION_DECODE_ONCE_

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Vectors of a row that a tile keeps in registers.
constexpr size_t TileVectors(size_t rows) {
  return std::min<size_t>(rows == 1 ? 4 : 2, 16 / kTileLanes * 2);
}

// c [kRows, kVectors * lanes] (+)= a [kRows, inner] b [inner, ...], in the order of `inner`.
template <size_t kRows, size_t kVectors, TileC kC, class E>
HWY_INLINE void Tile(const float* a, size_t a_stride, const E* b, size_t b_stride, size_t inner,
                     float* c, size_t c_stride) {
  const TileTag d;
  TileVec sum[kRows][kVectors];
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) {
      sum[r][v] = kC == TileC::kAdd ? hn::LoadU(d, c + r * c_stride + v * kTileLanes) : hn::Zero(d);
    }
  }
  for (size_t k = 0; k < inner; ++k, b += b_stride) {
    TileVec row[kVectors];
    for (size_t v = 0; v < kVectors; ++v) row[v] = LoadF32(d, b + v * kTileLanes);
    for (size_t r = 0; r < kRows; ++r) {
      const TileVec factor = hn::Set(d, a[r * a_stride + k]);
      for (size_t v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(factor, row[v], sum[r][v]);
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) {
      hn::StoreU(sum[r][v], d, c + r * c_stride + v * kTileLanes);
    }
  }
}

// The same over `cols` columns, a multiple of 16.
template <size_t kRows, TileC kC, class E>
HWY_NOINLINE void Multiply(const float* a, size_t a_stride, const E* b, size_t b_stride,
                           size_t inner, float* c, size_t c_stride, size_t cols) {
  constexpr size_t kVectors = TileVectors(kRows), kWide = kVectors * kTileLanes;
  size_t col = 0;
  for (; col + kWide <= cols; col += kWide) {
    Tile<kRows, kVectors, kC>(a, a_stride, b + col, b_stride, inner, c + col, c_stride);
  }
  for (; col < cols; col += kTileLanes) {
    Tile<kRows, 1, kC>(a, a_stride, b + col, b_stride, inner, c + col, c_stride);
  }
}

template <class E>
void Prefetch(const E* from, size_t count) {
  const char* const bytes = reinterpret_cast<const char*>(from);
  for (size_t at = 0; at < count * sizeof(E); at += 64) hwy::Prefetch(bytes + at);
}

// to = from rotated by the angles of one position, times scale.
template <class E, class To>
void Rotate(const E* from, const float* table, size_t head_size, float scale, To* to,
            size_t to_stride) {
  for (size_t i = 0; i < head_size; i += 2) {
    const float cosine = table[i], sine = table[i + 1];
    const float a = static_cast<float>(from[i]), b = static_cast<float>(from[i + 1]);
    to[i * to_stride] = static_cast<To>((a * cosine - b * sine) * scale);
    to[(i + 1) * to_stride] = static_cast<To>((b * cosine + a * sine) * scale);
  }
}

template <class E>
void StoreNew(const DecodeHead<E>& head) {
  const size_t padded = PaddedHead(head.head_size);
  for (size_t i = 0; i < head.count; ++i) {
    const size_t position = head.start + i, page = position / kPage, at = position % kPage;
    const E* const k = head.q + i * 3 * head.width + head.width;
    Rotate(k, head.rotary + i * head.head_size, head.head_size, 1.0f, head.Keys(page) + at, kPage);
    std::copy_n(k + head.width, head.head_size, head.Values(page) + at * padded);
  }
}

// sums [kRows, padded] += p [kRows, ...] V over positions [begin, end).
template <size_t kRows, class E>
void AddValues(const DecodeHead<E>& head, const float* p, size_t stride, size_t begin, size_t end,
               float* sums) {
  const size_t padded = PaddedHead(head.head_size);
  while (begin < end) {
    const size_t page = begin / kPage, at = begin % kPage;
    const size_t n = std::min(end - begin, kPage - at);
    if (begin + n < end) Prefetch(head.Values(page + 1), std::min(kPage, end - begin - n) * padded);
    Multiply<kRows, TileC::kAdd>(p + begin, stride, head.Values(page) + at * padded, padded, n,
                                 sums, padded, padded);
    begin += n;
  }
}

// New tokens [first, first + kRows), of which `rows` exist.
template <size_t kRows, class E>
void Group(const DecodeHead<E>& head, size_t first, size_t rows, size_t stride, float* queries,
           float* scores, float* sums) {
  const size_t size = head.head_size, padded = PaddedHead(size);
  const float scale = 1.0f / std::sqrt(static_cast<float>(size));
  for (size_t r = 0; r < rows; ++r) {
    Rotate(head.q + (first + r) * 3 * head.width, head.rotary + (first + r) * size, size, scale,
           queries + r * size, 1);
  }
  std::fill_n(queries + rows * size, (kRows - rows) * size, 0.0f);
  const size_t common = head.start + first + 1;  // positions that every token of the group sees
  const size_t seen = common + rows - 1;
  for (size_t page = 0; page * kPage < seen; ++page) {
    if ((page + 1) * kPage < seen) Prefetch(head.Keys(page + 1), size * kPage);
    Multiply<kRows, TileC::kSet>(queries, size, head.Keys(page), kPage, size, scores + page * kPage,
                                 stride, kPage);
  }
  float max, total[kRows];
  for (size_t r = 0; r < rows; ++r) {
    SoftmaxRow(scores + r * stride, common + r, common + r, &max, &total[r]);
  }
  for (size_t r = rows; r < kRows; ++r) std::fill_n(scores + r * stride, common, 0.0f);
  std::fill_n(sums, kRows * padded, 0.0f);
  AddValues<kRows>(head, scores, stride, 0, common, sums);
  for (size_t r = 1; r < rows; ++r) {
    AddValues<1>(head, scores + r * stride, stride, common, common + r, sums + r * padded);
  }
  for (size_t r = 0; r < rows; ++r) {
    const float inverse = 1.0f / total[r];
    E* const out = head.out + (first + r) * head.width;
    for (size_t i = 0; i < size; ++i) out[i] = static_cast<E>(sums[r * padded + i] * inverse);
  }
}

template <class E>
void Head(const DecodeHead<E>& head) {
  const size_t rows = head.count == 1 ? 1 : kTileRows, padded = PaddedHead(head.head_size);
  const size_t stride = RoundUp(head.start + head.count, kPage) + 16;
  float *queries, *scores, *sums;
  const auto place = [&](ScratchPlan plan) {
    queries = plan.Take<float>(rows * head.head_size);
    scores = plan.Take<float>(rows * stride);
    sums = plan.Take<float>(rows * padded);
    return plan.used();
  };
  place(ScratchPlan(ThreadScratch(place(ScratchPlan()))));
  StoreNew(head);
  for (size_t first = 0; first < head.count; first += kTileRows) {
    const size_t n = std::min(kTileRows, head.count - first);
    if (n == 1) {
      Group<1>(head, first, 1, stride, queries, scores, sums);
    } else {
      Group<kTileRows>(head, first, n, stride, queries, scores, sums);
    }
  }
}

}  // namespace

void DecodeHeadF32(const DecodeHead<float>& head) { Head(head); }
void DecodeHeadBF16(const DecodeHead<bf16>& head) { Head(head); }

}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace denseformer {

HWY_EXPORT(DecodeHeadF32);
HWY_EXPORT(DecodeHeadBF16);

namespace {

void RunHead(const DecodeHead<float>& head) { DF_DYNAMIC_DISPATCH(DecodeHeadF32)(head); }
void RunHead(const DecodeHead<bf16>& head) { DF_DYNAMIC_DISPATCH(DecodeHeadBF16)(head); }

template <class E>
void Run(const DecodeAttention& a) {
  const int64_t width = a.qkv.cols() / 3, head_size = width / a.heads;
  const int64_t count = static_cast<int64_t>(a.queries.size());
  ParallelForEach(a.heads * count, [&](int64_t n, int) {
    const DecodeQuery& query = a.queries[static_cast<size_t>(n % count)];
    const int64_t head = n / count;
    RunHead(DecodeHead<E>{.q = a.qkv.As<E>() + query.row * 3 * width + head * head_size,
                          .width = static_cast<size_t>(width),
                          .head_size = static_cast<size_t>(head_size),
                          .head = static_cast<size_t>(head),
                          .heads = static_cast<size_t>(a.heads),
                          .rotary = a.rotary.f32() + query.start * head_size,
                          .page_offset = a.page_offset,
                          .pages = query.pages.data(),
                          .count = static_cast<size_t>(query.count),
                          .start = static_cast<size_t>(query.start),
                          .out = a.out.As<E>() + query.row * width + head * head_size});
  });
}

}  // namespace

size_t KvPageBlockBytes(int64_t heads, int64_t head_size, DType dtype) {
  const size_t size = static_cast<size_t>(head_size);
  const size_t bytes =
      static_cast<size_t>(heads) * kPage * (size + PaddedHead(size)) * SizeOf(dtype);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void AttentionDecode(const DecodeAttention& a) {
  const int64_t width = a.qkv.cols() / 3;
  DF_CHECK_MSG(a.heads > 0 && a.qkv.cols() % (3 * a.heads) == 0, "qkv is {}, with {} heads",
               a.qkv.shape().ToString(), a.heads);
  DF_CHECK(width / a.heads % 2 == 0 && a.rotary.cols() == width / a.heads);
  DF_CHECK(a.out.dtype() == a.qkv.dtype() && a.out.count() == a.qkv.rows() * width);
  for (const DecodeQuery& query : a.queries) {
    const int64_t seen = query.start + query.count;
    DF_CHECK_MSG(
        seen <= static_cast<int64_t>(query.pages.size()) * kKvPageTokens && seen <= a.rotary.rows(),
        "{} + {} tokens, {} pages, {} positions", query.start, query.count, query.pages.size(),
        a.rotary.rows());
    DF_CHECK(query.start >= 0 && query.count >= 0 && query.row >= 0 &&
             query.row + query.count <= a.qkv.rows());
  }
  if (a.qkv.dtype() == DType::kF32) {
    Run<float>(a);
  } else {
    Run<bf16>(a);
  }
}

}  // namespace denseformer
#endif  // HWY_ONCE
