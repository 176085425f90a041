// What attention of one new token and of several have in common: where the keys and values of a
// head are, how new ones are stored, and what becomes of scores and sums.
#ifndef DENSEFORMER_KERNELS_ATTENTION_ATTENTION_DECODE_HEADS_ONCE_
#define DENSEFORMER_KERNELS_ATTENTION_ATTENTION_DECODE_HEADS_ONCE_

#include <cmath>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "kernels/attention/attention_decode.h"
#include "tensor/dtype.h"

namespace denseformer {
namespace {

constexpr size_t kPage = static_cast<size_t>(kKvPageTokens);

// Rows of values are padded to whole vectors of every target.
constexpr size_t PaddedHead(size_t head_size) { return (head_size + 15) / 16 * 16; }

// Elements of a unit of 4 bytes: terms that follow each other in a sum.
template <class E>
constexpr size_t kTerms = sizeof(float) / sizeof(E);

// While the keys or values of a head in a page are read, those so many places later are fetched.
constexpr size_t kAhead = 1;

// Heads [head, head + run) of one sequence, neighbors in memory; one head of several new tokens.
template <class E>
struct DecodeHeads {
  const E* q;  // of the first new token; k and v are `width` and 2 * `width` elements later
  size_t width;
  size_t head_size;
  size_t head;
  size_t run;
  size_t heads;
  const float* rotary;  // of the first new token
  size_t page_offset;
  std::byte* const* pages;
  size_t count;  // new tokens
  size_t start;
  E* out;                   // rows `width` apart
  const DecodeHeads* next;  // what the thread reads after these; null: unknown

  size_t page_count() const { return (start + count + kPage - 1) / kPage; }
  // Elements of a piece: the keys or the values of one head in a page.
  size_t key_piece() const { return head_size * kPage; }
  size_t value_piece() const { return PaddedHead(head_size) * kPage; }
  // Of head `head + h`.
  E* Keys(size_t page, size_t h) const { return Block(page) + (head + h) * key_piece(); }
  E* Values(size_t page, size_t h) const {
    return Block(page) + heads * key_piece() + (head + h) * value_piece();
  }
  float Scale() const { return 1.0f / std::sqrt(static_cast<float>(head_size)); }

 private:
  E* Block(size_t page) const { return reinterpret_cast<E*>(pages[page] + page_offset); }
};

}  // namespace
}  // namespace denseformer
#endif  // once

#if defined(DENSEFORMER_KERNELS_ATTENTION_ATTENTION_DECODE_HEADS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef DENSEFORMER_KERNELS_ATTENTION_ATTENTION_DECODE_HEADS_INL_H_
#undef DENSEFORMER_KERNELS_ATTENTION_ATTENTION_DECODE_HEADS_INL_H_
#else
#define DENSEFORMER_KERNELS_ATTENTION_ATTENTION_DECODE_HEADS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "kernels/attention/attention_row-inl.h"
#include "kernels/load-inl.h"
#include "kernels/rotary-inl.h"
#include "kernels/tile-inl.h"
#include "kernels/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

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

// Keys of new token n, rotated, of all heads of the run; `rotated` is memory for them.
template <class E>
void RotateKeys(const DecodeHeads<E>& heads, size_t n, E* rotated) {
  const size_t size = heads.head_size;
  RotateHeads(heads.rotary + n * size, static_cast<int64_t>(size), static_cast<int64_t>(heads.run),
              1.0f, 1.0f, heads.q + n * 3 * heads.width + heads.width, rotated);
}

// Stores the key of new token n, of head `head + h`, into its page.
template <class E>
void StoreKey(const DecodeHeads<E>& heads, size_t n, size_t h, const E* rotated) {
  const size_t position = heads.start + n;
  E* const keys = heads.Keys(position / kPage, h) + position % kPage * kTerms<E>;
  for (size_t i = 0; i < heads.head_size; i += kTerms<E>) {
    std::memcpy(keys + i * kPage, rotated + h * heads.head_size + i, sizeof(float));
  }
}

// The same for its value.
template <class E>
void StoreValue(const DecodeHeads<E>& heads, size_t n, size_t h) {
  const size_t position = heads.start + n, size = heads.head_size;
  const E* const v = heads.q + n * 3 * heads.width + 2 * heads.width + h * size;
  StoreValues(v, size, position % kPage, PaddedHead(size), heads.Values(position / kPage, h));
}

// Where 1 / sqrt(head_size) goes: an fp32 query is multiplied before the products. A bf16 query is
// rounded as the forward pass rounds it, and the scores are multiplied.
template <class E>
constexpr bool kScaleScores = std::is_same_v<E, bf16>;

// Queries of new token n.
template <class E>
void RotateQueries(const DecodeHeads<E>& heads, size_t n, E* queries) {
  const size_t size = heads.head_size;
  RotateHeads(heads.rotary + n * size, static_cast<int64_t>(size), static_cast<int64_t>(heads.run),
              1.0f, kScaleScores<E> ? 1.0f : heads.Scale(), heads.q + n * 3 * heads.width, queries);
}

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

// Scores of the first `seen` positions become units of exp(s - max); returns the sum.
template <class E>
float Probabilities(const DecodeHeads<E>& heads, size_t seen, float* row) {
  float max, total;
  if constexpr (kScaleScores<E>) ScaleRow(row, seen, heads.Scale());
  SoftmaxRow(row, seen, seen, &max, &total);
  RoundRow(row, seen, E());
  return total;
}

// Elements of a head of the result.
template <class E>
void StoreResult(const float* sums, size_t size, float total, E* out) {
  const TileTag d;
  const float inverse = 1.0f / total;
  ForEachVector(d, static_cast<int64_t>(size), [&](int64_t i, auto lanes) HWY_ATTR {
    StoreLanes(d, hn::Mul(LoadLanes(d, sums + i, lanes), hn::Set(d, inverse)), out + i, lanes);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#endif  // per target
