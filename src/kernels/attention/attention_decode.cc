// Attention of new tokens against a paged cache. Groups of kTileRows new tokens share each load of
// a page; a group whose tokens see different numbers of positions adds the last few token by token,
// so that no sum depends on the grouping. In bf16, queries and probabilities are rounded for the
// products; scores, their softmax and all sums are fp32.
#include "kernels/attention/attention_decode.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/team.h"
#include "kernels/simd.h"
#include "tensor/scratch.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_decode.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on
#include "kernels/attention/attention_row-inl.h"
#include "kernels/attention/attention_units-inl.h"
#include "kernels/load-inl.h"
#include "kernels/rotary-inl.h"
#include "kernels/tile-inl.h"
#include "kernels/vector_loop-inl.h"

#ifndef DENSEFORMER_KERNELS_ATTENTION_ATTENTION_DECODE_ONCE_
#define DENSEFORMER_KERNELS_ATTENTION_ATTENTION_DECODE_ONCE_
namespace denseformer {
namespace {

constexpr size_t kPage = static_cast<size_t>(kKvPageTokens);

// Rows of values are padded to whole vectors of every target.
constexpr size_t PaddedHead(size_t head_size) { return (head_size + 15) / 16 * 16; }

// Elements of a unit of 4 bytes: terms that follow each other in a sum.
template <class E>
constexpr size_t kTerms = sizeof(float) / sizeof(E);

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
  E* out;                  // rows `width` apart
  const DecodeHead* next;  // what the thread reads after this one; null: unknown

  size_t page_count() const { return (start + count + kPage - 1) / kPage; }
  // Positions of the last page that exist.
  size_t last_count() const { return start + count - (page_count() - 1) * kPage; }
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

// A head reads pieces of memory in this order: the keys of its pages, then their values; then comes
// the next head. While a piece is read, the one so many places later is fetched.
constexpr size_t kAhead = 2;

// Where a piece begins; null: unknown.
template <class E>
const E* PieceOf(const DecodeHead<E>& head, size_t piece) {
  const size_t pages = head.page_count();
  if (piece < pages) return head.Keys(piece);
  if (piece < 2 * pages) return head.Values(piece - pages);
  if (head.next == nullptr || piece - 2 * pages >= kAhead) return nullptr;
  return PieceOf(*head.next, piece - 2 * pages);
}

// Bytes from a piece to the one to fetch meanwhile; 0, which costs nothing, where there is none or
// where FetchLast was there before.
template <class E>
ptrdiff_t AheadOf(const DecodeHead<E>& head, size_t piece) {
  const size_t pages = head.page_count();
  const E* const next = PieceOf(head, piece + kAhead);
  if (next == nullptr || piece + kAhead + 1 == 2 * pages) return 0;
  return reinterpret_cast<const char*>(next) - reinterpret_cast<const char*>(PieceOf(head, piece));
}

// Scores that are computed for `count` positions of a page: those of whole lines.
constexpr size_t kLine = 64 / sizeof(float);
constexpr size_t ScoredOf(size_t count) { return std::min(RoundUp(count, kLine), kPage); }

inline void FetchLines(const void* from, size_t bytes) {
  const char* const begin = static_cast<const char*>(from);
  for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(begin + at, 0, /*locality=*/2);
}

// The last page, where new keys and values will be written: as much of it as is used.
template <class E>
void FetchLast(const DecodeHead<E>& head) {
  const size_t page = head.page_count() - 1, count = head.last_count();
  const float* const keys = reinterpret_cast<const float*>(head.Keys(page));
  for (size_t k = 0; k < head.head_size / kTerms<E>; ++k) {
    FetchLines(keys + k * kPage, ScoredOf(count) * sizeof(float));
  }
  FetchLines(head.Values(page), RoundUp(count, kTerms<E>) * PaddedHead(head.head_size) * sizeof(E));
  asm volatile("");  // GCC drops calls of functions that do nothing but prefetch
}

// The units of a row or of a page, as the products read them.
template <class E>
const float* Units(const E* from) {
  return reinterpret_cast<const float*>(from);
}

// Values of a new token into its place in a page, of which a unit of bf16 has two tokens.
inline void StoreValues(const float* from, size_t size, size_t at, size_t padded, float* values) {
  std::copy_n(from, size, values + at * padded);
}
inline void StoreValues(const bf16* from, size_t size, size_t at, size_t padded, bf16* values) {
  const hn::CappedTag<uint32_t, 16> d;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  bf16* const to = values + at / 2 * padded * 2;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= size; i += hn::Lanes(d)) {
    const auto added =
        hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from + i)));
    uint32_t* const units = reinterpret_cast<uint32_t*>(to + i * 2);
    const auto before = hn::LoadU(d, units);
    const auto unit = at % 2 == 0
                          ? hn::Or(hn::And(before, hn::Set(d, 0xffff0000u)), added)
                          : hn::Or(hn::And(before, hn::Set(d, 0xffffu)), hn::ShiftLeft<16>(added));
    hn::StoreU(unit, d, units);
  }
  for (; i < size; ++i) to[i * 2 + at % 2] = from[i];
}

// `row` is memory for head_size elements.
template <class E>
void StoreNew(const DecodeHead<E>& head, E* row) {
  const size_t size = head.head_size, padded = PaddedHead(size);
  for (size_t n = 0; n < head.count; ++n) {
    const size_t position = head.start + n, page = position / kPage, at = position % kPage;
    const E* const k = head.q + n * 3 * head.width + head.width;
    RotateHeads(head.rotary + n * size, static_cast<int64_t>(size), 1, 1.0f, 1.0f, k, row);
    E* const keys = head.Keys(page) + at * kTerms<E>;
    for (size_t i = 0; i < size; i += kTerms<E>) {
      std::memcpy(keys + i * kPage, row + i, sizeof(float));
    }
    StoreValues(k + head.width, size, at, padded, head.Values(page));
  }
}

// Where 1 / sqrt(head_size) goes: an fp32 query is multiplied before the products. A bf16 query is
// rounded as the forward pass rounds it, and the scores are multiplied.
template <class E>
constexpr bool kScaleScores = std::is_same_v<E, bf16>;

inline void ScaleRow(float* row, size_t count, float scale) {
  const TileTag d;
  for (size_t j = 0; j < count; j += kTileLanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, row + j), hn::Set(d, scale)), d, row + j);
  }
}

// A row of probabilities becomes units: bf16 takes the first half of the row.
inline void RoundRow(float*, size_t, float) {}
inline void RoundRow(float* row, size_t count, bf16) {
  const TileTag d;
  bf16* const rounded = reinterpret_cast<bf16*>(row);
  for (size_t j = 0; j < count; j += kTileLanes) {
    StoreF32(d, hn::LoadU(d, row + j), rounded + j);
  }
}

// Pages whose scores of one token are summed side by side: a page has too few vectors to hide the
// latency of the additions.
constexpr size_t kScorePages = std::max<size_t>(1, 4 * kTileLanes / kPage);

// The scores of one token for the pages from `page` on, kLast of the last of them; the same sums
// as MultiplyUnits.
template <class E, size_t kLast>
void ScorePages(const DecodeHead<E>& head, const float* query, size_t page, float* scores) {
  const TileTag d;
  constexpr size_t kVectors = kPage / kTileLanes, kLastVectors = kLast / kTileLanes;
  const size_t units = head.head_size / kTerms<E>;
  const float* keys[kScorePages];
  ptrdiff_t ahead[kScorePages];
  for (size_t p = 0; p < kScorePages; ++p) {
    keys[p] = Units(head.Keys(page + p));
    ahead[p] = AheadOf(head, page + p);
  }
  WithUnits<E>([&]<class U>(U) HWY_ATTR {
    TileVec sum[kScorePages][kVectors];
    for (auto& of_page : sum) {
      for (TileVec& s : of_page) s = hn::Zero(d);
    }
    for (size_t k = 0; k < units; ++k) {
      const TileVec factor = hn::Set(d, LoadUnit(query + k));
      for (size_t p = 0; p < kScorePages; ++p) {
        for (size_t v = 0; v < (p + 1 < kScorePages ? kVectors : kLastVectors); ++v) {
          const float* const from = keys[p] + k * kPage + v * kTileLanes;
          FetchAhead(from, ahead[p]);
          sum[p][v] = U::MulAdd(factor, hn::LoadU(d, from), sum[p][v]);
        }
      }
    }
    for (size_t p = 0; p < kScorePages; ++p) {
      for (size_t v = 0; v < (p + 1 < kScorePages ? kVectors : kLastVectors); ++v) {
        hn::StoreU(sum[p][v], d, scores + p * kPage + v * kTileLanes);
      }
    }
  });
}

// sums [kRows, padded] += p [kRows, ...] V over the units [begin, end) of positions.
template <size_t kRows, class E>
void AddValues(const DecodeHead<E>& head, const float* p, size_t stride, size_t begin, size_t end,
               float* sums) {
  constexpr size_t kUnits = kPage / kTerms<E>;  // of a page
  const size_t padded = PaddedHead(head.head_size);
  while (begin < end) {
    const size_t page = begin / kUnits, at = begin % kUnits;
    const size_t n = std::min(end - begin, kUnits - at);
    MultiplyUnits<E, kRows, TileC::kAdd>(p + begin, stride, Units(head.Values(page)) + at * padded,
                                         padded, n, sums, padded, padded,
                                         AheadOf(head, head.page_count() + page));
    begin += n;
  }
}

// The same for the units from `begin` on of one token, which sees `seen` positions. What stands
// behind the last of them in its unit is no part of the sum.
template <class E>
void AddLastValues(const DecodeHead<E>& head, const float* p, size_t begin, size_t seen,
                   float* sums) {
  const size_t end = seen / kTerms<E>, padded = PaddedHead(head.head_size);
  AddValues<1>(head, p, 0, begin, end, sums);
  if (seen % kTerms<E> == 0) return;
  constexpr size_t kUnits = kPage / kTerms<E>;
  MultiplyUnits<E, 1, TileC::kAdd, UnitPart::kFirstOfPair>(
      p + end, 0, Units(head.Values(end / kUnits)) + end % kUnits * padded, padded, 1, sums, padded,
      padded, /*ahead=*/0);
}

// New tokens [first, first + kRows), of which `rows` exist.
template <size_t kRows, class E>
void Group(const DecodeHead<E>& head, size_t first, size_t rows, size_t stride, E* queries,
           float* scores, float* sums) {
  const size_t size = head.head_size, padded = PaddedHead(size), units = size / kTerms<E>;
  const float scale = 1.0f / std::sqrt(static_cast<float>(size));
  for (size_t r = 0; r < rows; ++r) {
    RotateHeads(head.rotary + (first + r) * size, static_cast<int64_t>(size), 1, 1.0f,
                kScaleScores<E> ? 1.0f : scale, head.q + (first + r) * 3 * head.width,
                queries + r * size);
  }
  std::fill_n(queries + rows * size, (kRows - rows) * size, E(0.0f));
  const size_t common = head.start + first + 1;  // positions that every token of the group sees
  const size_t seen = common + rows - 1;
  size_t page = 0;
  if constexpr (kRows == 1) {
    for (; page + kScorePages <= head.page_count(); page += kScorePages) {
      if (seen + kLine <= (page + kScorePages) * kPage) {
        ScorePages<E, kPage - kLine>(head, Units(queries), page, scores + page * kPage);
      } else {
        ScorePages<E, kPage>(head, Units(queries), page, scores + page * kPage);
      }
    }
  }
  for (; page * kPage < seen; ++page) {
    MultiplyUnits<E, kRows, TileC::kSet>(Units(queries), units, Units(head.Keys(page)), kPage,
                                         units, scores + page * kPage, stride,
                                         ScoredOf(seen - page * kPage), AheadOf(head, page));
  }
  float max, total[kRows];
  for (size_t r = 0; r < rows; ++r) {
    float* const row = scores + r * stride;
    if constexpr (kScaleScores<E>) ScaleRow(row, common + r, scale);
    SoftmaxRow(row, common + r, common + r, &max, &total[r]);
    RoundRow(row, common + r, E());
  }
  const size_t common_units = common / kTerms<E>;
  for (size_t r = rows; r < kRows; ++r) std::fill_n(scores + r * stride, common_units, 0.0f);
  std::fill_n(sums, kRows * padded, 0.0f);
  AddValues<kRows>(head, scores, stride, 0, common_units, sums);
  for (size_t r = 0; r < rows; ++r) {
    AddLastValues(head, scores + r * stride, common_units, common + r, sums + r * padded);
  }
  for (size_t r = 0; r < rows; ++r) {
    const float inverse = 1.0f / total[r];
    E* const out = head.out + (first + r) * head.width;
    const TileTag d;
    ForEachVector(d, static_cast<int64_t>(size), [&](int64_t i, auto lanes) HWY_ATTR {
      const auto sum = LoadLanes(d, sums + r * padded + i, lanes);
      StoreLanes(d, hn::Mul(sum, hn::Set(d, inverse)), out + i, lanes);
    });
  }
}

template <class E>
void Head(const DecodeHead<E>& head) {
  const size_t rows = head.count == 1 ? 1 : kTileRows, padded = PaddedHead(head.head_size);
  const size_t stride = RoundUp(head.start + head.count, kPage) + 16;
  E* queries;
  float *scores, *sums;
  const auto place = [&](ScratchPlan plan) {
    queries = plan.Take<E>(rows * head.head_size);
    scores = plan.Take<float>(rows * stride);
    sums = plan.Take<float>(rows * padded);
    return plan.used();
  };
  place(ScratchPlan(ThreadScratch(place(ScratchPlan()))));
  StoreNew(head, queries);
  if (head.next != nullptr) FetchLast(*head.next);
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

// Whether sequences next to each other begin with the same page.
bool SharesPages(std::span<const DecodeQuery> queries) {
  const auto share = [](const DecodeQuery& a, const DecodeQuery& b) {
    return !a.pages.empty() && !b.pages.empty() && a.pages.front() == b.pages.front();
  };
  return std::adjacent_find(queries.begin(), queries.end(), share) != queries.end();
}

template <class E>
void Run(const DecodeAttention& a) {
  const int64_t width = a.qkv.cols() / 3, head_size = width / a.heads;
  const int64_t count = static_cast<int64_t>(a.queries.size());
  // The heads of a sequence in a row are neighbors in its pages, which spares address translations.
  // Where sequences share pages, each head visits all of them, so that they find it in cache.
  const bool by_head = SharesPages(a.queries);
  const auto head = [&](int64_t n, const DecodeHead<E>* next) {
    const DecodeQuery& query = a.queries[static_cast<size_t>(by_head ? n % count : n / a.heads)];
    const int64_t head = by_head ? n / count : n % a.heads;
    return DecodeHead<E>{.q = a.qkv.As<E>() + query.row * 3 * width + head * head_size,
                         .width = static_cast<size_t>(width),
                         .head_size = static_cast<size_t>(head_size),
                         .head = static_cast<size_t>(head),
                         .heads = static_cast<size_t>(a.heads),
                         .rotary = a.rotary.f32() + query.start * head_size,
                         .page_offset = a.page_offset,
                         .pages = query.pages.data(),
                         .count = static_cast<size_t>(query.count),
                         .start = static_cast<size_t>(query.start),
                         .out = a.out.As<E>() + query.row * width + head * head_size,
                         .next = next};
  };
  ParallelForShared(
      a.heads * count, /*grain=*/1,
      [&](int64_t n, int) {
        if (n + 1 == a.heads * count) return RunHead(head(n, nullptr));
        const DecodeHead<E> next = head(n + 1, nullptr);
        RunHead(head(n, &next));
      },
      [](int, int) {});
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
