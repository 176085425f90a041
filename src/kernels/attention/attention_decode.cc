// Attention of new tokens against a paged cache. Groups of kTileRows new tokens share each load of
// a page; a group whose tokens see different numbers of positions adds the last few token by token,
// so that no sum depends on the grouping. In bf16, queries and probabilities are rounded for the
// products; scores, their softmax and all sums are fp32.
#include "kernels/attention/attention_decode.h"

#include <algorithm>

#include "base/team.h"
#include "kernels/simd.h"
#include "tensor/scratch.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_decode.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on
#include "kernels/attention/attention_decode_heads-inl.h"
#include "kernels/attention/attention_decode_token-inl.h"
#include "kernels/attention/attention_row-inl.h"
#include "kernels/attention/attention_units-inl.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {

// One head of several new tokens. It reads the keys of its pages, then their values.
template <class E>
struct TokenGroup {
  const DecodeHeads<E>& head;
  size_t stride;  // of scores
  E* queries;
  float* scores;
  float* sums;

  // Bytes from the keys or values of a page to those that are fetched meanwhile; 0, which costs
  // nothing, behind the last.
  ptrdiff_t Ahead(size_t page) const {
    if (page + kAhead >= head.page_count()) return 0;
    return head.pages[page + kAhead] - head.pages[page];
  }
};

// sums [kRows, padded] += p [kRows, ...] V over the units [begin, end) of positions.
template <size_t kRows, class E>
void AddValues(const TokenGroup<E>& g, const float* p, size_t begin, size_t end, float* sums) {
  constexpr size_t kUnits = kPage / kTerms<E>;  // of a page
  const size_t padded = PaddedHead(g.head.head_size);
  while (begin < end) {
    const size_t page = begin / kUnits, at = begin % kUnits;
    const size_t n = std::min(end - begin, kUnits - at);
    MultiplyUnits<E, kRows, TileC::kAdd>(p + begin, g.stride,
                                         Units(g.head.Values(page, 0)) + at * padded, padded, n,
                                         sums, padded, padded, g.Ahead(page));
    begin += n;
  }
}

// The same for the units from `begin` on of one token, which sees `seen` positions. What stands
// behind the last of them in its unit is no part of the sum.
template <class E>
void AddLastValues(const TokenGroup<E>& g, const float* p, size_t begin, size_t seen, float* sums) {
  const size_t end = seen / kTerms<E>, padded = PaddedHead(g.head.head_size);
  AddValues<1>(g, p, begin, end, sums);
  if (seen % kTerms<E> == 0) return;
  constexpr size_t kUnits = kPage / kTerms<E>;
  MultiplyUnits<E, 1, TileC::kAdd, UnitPart::kFirstOfPair>(
      p + end, 0, Units(g.head.Values(end / kUnits, 0)) + end % kUnits * padded, padded, 1, sums,
      padded, padded, /*ahead=*/0);
}

// New tokens [first, first + rows) of one head.
template <class E>
void Group(const TokenGroup<E>& g, size_t first, size_t rows) {
  const DecodeHeads<E>& head = g.head;
  const size_t size = head.head_size, padded = PaddedHead(size), units = size / kTerms<E>;
  for (size_t r = 0; r < rows; ++r) {
    RotateQueries(head, first + r, g.queries + r * size);
  }
  std::fill_n(g.queries + rows * size, (kTileRows - rows) * size, E(0.0f));
  const size_t common = head.start + first + 1;  // positions that every token of the group sees
  const size_t seen = common + rows - 1;
  for (size_t page = 0; page * kPage < seen; ++page) {
    MultiplyUnits<E, kTileRows, TileC::kSet>(
        Units(g.queries), units, Units(head.Keys(page, 0)), kPage, units, g.scores + page * kPage,
        g.stride, std::min(RoundUp(seen - page * kPage, 16), kPage), g.Ahead(page));
  }
  float total[kTileRows];
  for (size_t r = 0; r < rows; ++r) {
    total[r] = Probabilities(head, common + r, g.scores + r * g.stride);
  }
  const size_t common_units = common / kTerms<E>;
  for (size_t r = rows; r < kTileRows; ++r) {
    std::fill_n(g.scores + r * g.stride, common_units, 0.0f);
  }
  std::fill_n(g.sums, kTileRows * padded, 0.0f);
  AddValues<kTileRows>(g, g.scores, 0, common_units, g.sums);
  for (size_t r = 0; r < rows; ++r) {
    AddLastValues(g, g.scores + r * g.stride, common_units, common + r, g.sums + r * padded);
  }
  for (size_t r = 0; r < rows; ++r) {
    StoreResult(g.sums + r * padded, size, total[r], head.out + (first + r) * head.width);
  }
}

template <class E>
void SeveralTokens(const DecodeHeads<E>& head) {
  const size_t size = head.head_size, padded = PaddedHead(size);
  const size_t stride = RoundUp(head.start + head.count, kPage) + 16;
  E *rotated, *queries;
  float *scores, *sums;
  const auto place = [&](ScratchPlan plan) {
    rotated = plan.Take<E>(size);
    queries = plan.Take<E>(kTileRows * size);
    scores = plan.Take<float>(kTileRows * stride);
    sums = plan.Take<float>(kTileRows * padded);
    return plan.used();
  };
  place(ScratchPlan(ThreadScratch(place(ScratchPlan()))));
  for (size_t n = 0; n < head.count; ++n) {
    RotateKeys(head, n, rotated);
    StoreKey(head, n, 0, rotated);
    StoreValue(head, n, 0);
  }
  for (size_t first = 0; first < head.count; first += kTileRows) {
    Group(TokenGroup<E>{head, stride, queries, scores, sums}, first,
          std::min(kTileRows, head.count - first));
  }
}

template <class E>
void Attend(const DecodeHeads<E>& heads) {
  if (heads.count == 1) {
    OneToken(heads);
  } else {
    SeveralTokens(heads);
  }
}

}  // namespace

void DecodeHeadsF32(const DecodeHeads<float>& heads) { Attend(heads); }
void DecodeHeadsBF16(const DecodeHeads<bf16>& heads) { Attend(heads); }

}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace denseformer {

HWY_EXPORT(DecodeHeadsF32);
HWY_EXPORT(DecodeHeadsBF16);

namespace {

void RunHeads(const DecodeHeads<float>& heads) { DF_DYNAMIC_DISPATCH(DecodeHeadsF32)(heads); }
void RunHeads(const DecodeHeads<bf16>& heads) { DF_DYNAMIC_DISPATCH(DecodeHeadsBF16)(heads); }

// Heads of a run at most: pieces of memory that follow each other in a page.
constexpr int64_t kMostRun = 12;
// Runs for each thread at least, as long as there are heads, so that no thread waits long for the
// last one.
constexpr int64_t kLeastRuns = 2;

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
  // Heads of several new tokens are much work each, and reading is not what limits them.
  const bool by_head = SharesPages(a.queries);
  const bool several =
      std::ranges::any_of(a.queries, [](const DecodeQuery& query) { return query.count > 1; });
  const int64_t most = by_head || several ? 1 : kMostRun;
  const int64_t run = std::clamp<int64_t>(a.heads * count / (kLeastRuns * NumThreads()), 1, most);
  const int64_t runs = (a.heads + run - 1) / run;
  const auto heads = [&](int64_t n, const DecodeHeads<E>* next) {
    const DecodeQuery& query = a.queries[static_cast<size_t>(by_head ? n % count : n / runs)];
    const int64_t r = by_head ? n / count : n % runs;
    const int64_t head = a.heads * r / runs, end = a.heads * (r + 1) / runs;
    return DecodeHeads<E>{.q = a.qkv.As<E>() + query.row * 3 * width + head * head_size,
                          .width = static_cast<size_t>(width),
                          .head_size = static_cast<size_t>(head_size),
                          .head = static_cast<size_t>(head),
                          .run = static_cast<size_t>(end - head),
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
      runs * count, /*grain=*/1, /*most=*/1,
      [&](int64_t n, int64_t, const SharedPart&) {
        if (n + 1 == runs * count) return RunHeads(heads(n, nullptr));
        const DecodeHeads<E> next = heads(n + 1, nullptr);
        RunHeads(heads(n, &next));
      },
      [](const SharedPart&) {});
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
    DF_CHECK(query.start >= 0 && query.count > 0 && query.row >= 0 &&
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
