#include "data/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "base/error.h"
#include "data/split.h"

namespace denseformer {
namespace {

constexpr size_t kCacheEntries = size_t{1} << 15;
constexpr size_t kLongestCached = 23;
constexpr size_t kMostCachedIds = 9;
// Up to here the quadratic search for the lowest rank is faster than the heap.
constexpr size_t kLongestShort = 48;

// The piece as three words, zero-padded, with its length in the last byte.
struct PieceKey {
  uint64_t words[3];

  PieceKey(const char* piece, size_t length, const char* text_end) {
    if (text_end - piece >= 24) {
      std::memcpy(words, piece, 24);
      for (size_t i = 0; i < 3; ++i) {
        const size_t from = 8 * i;
        const uint64_t mask = length >= from + 8 ? ~uint64_t{0}
                              : length > from    ? (uint64_t{1} << 8 * (length - from)) - 1
                                                 : 0;
        words[i] &= mask;
      }
    } else {
      std::memset(words, 0, sizeof(words));
      std::memcpy(words, piece, length);
    }
    words[2] |= uint64_t{length} << 56;
  }

  size_t Slot() const {
    const uint64_t hash = (words[0] * 0x9E3779B97F4A7C15u) ^ (words[1] * 0xC2B2AE3D27D4EB4Fu) ^
                          (words[2] * 0x165667B19E3779F9u);
    return (hash ^ hash >> 29) * 0xBF58476D1CE4E5B9u >> (64 - 15);
  }
};
static_assert(kCacheEntries == size_t{1} << 15);

}  // namespace

BpeTable::BpeTable(const TokenizerData& data) : byte_ids_(data.byte_ids) {
  const size_t slots = std::bit_ceil(std::max<size_t>(16, 2 * data.merges.size() + 1));
  slots_.resize(slots);
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
  results_.reserve(data.merges.size());
  for (const BpeMerge& merge : data.merges) {
    const uint64_t key = Key(merge.left, merge.right);
    size_t slot = Slot(key);
    while (slots_[slot].key != kEmpty && slots_[slot].key != key) slot = (slot + 1) & mask_;
    // A pair that is listed twice keeps its first rank.
    if (slots_[slot].key == kEmpty) {
      slots_[slot] = {key, static_cast<uint32_t>(results_.size())};
    }
    results_.push_back(merge.result);
  }
}

BpeEncoder::BpeEncoder(const BpeTable& table) : table_(table) {}

void BpeEncoder::Encode(std::string_view text, std::vector<int32_t>* ids) {
  const size_t before = ids->size();
  ids->resize(before + text.size());  // a token has at least one byte
  int32_t* out = ids->data() + before;
  if (!table_.has_merges()) {
    for (const char c : text) *out++ = table_.byte_ids()[static_cast<unsigned char>(c)];
    return;
  }
  // A short text is not worth the memory.
  if (cache_.empty() && text.size() > 4096) cache_.resize(kCacheEntries);
  const char* text_end = text.data() + text.size();
  SplitText(text, [&](const char* piece, size_t length) {
    out = EncodePiece(piece, length, text_end, out);
  });
  ids->resize(static_cast<size_t>(out - ids->data()));
}

int32_t* BpeEncoder::EncodePiece(const char* piece, size_t length, const char* text_end,
                                 int32_t* out) {
  if (length > kLongestCached || cache_.empty()) {
    return length <= kLongestShort ? EncodeShort(piece, length, out)
                                   : EncodeLong(piece, length, out);
  }
  const PieceKey key(piece, length, text_end);
  CacheEntry& entry = cache_[key.Slot()];
  if (entry.key[0] == key.words[0] && entry.key[1] == key.words[1] &&
      entry.key[2] == key.words[2]) {
    for (int32_t i = 0; i < entry.count; ++i) out[i] = entry.ids[i];
    return out + entry.count;
  }
  int32_t* end = EncodeShort(piece, length, out);
  const auto count = static_cast<size_t>(end - out);
  if (count <= kMostCachedIds) {
    std::copy(key.words, key.words + 3, entry.key);
    entry.count = static_cast<int32_t>(count);
    std::copy(out, end, entry.ids);
  }
  return end;
}

int32_t* BpeEncoder::EncodeShort(const char* piece, size_t length, int32_t* out) {
  uint32_t ranks[kLongestShort];
  size_t count = length;
  for (size_t i = 0; i < length; ++i) {
    out[i] = table_.byte_ids()[static_cast<unsigned char>(piece[i])];
  }
  for (size_t i = 0; i + 1 < count; ++i) ranks[i] = table_.Rank(out[i], out[i + 1]);
  while (count > 1) {
    const size_t best = static_cast<size_t>(std::min_element(ranks, ranks + count - 1) - ranks);
    if (ranks[best] == BpeTable::kNoRank) break;
    out[best] = table_.Result(ranks[best]);
    for (size_t i = best + 1; i + 1 < count; ++i) {
      out[i] = out[i + 1];
      ranks[i - 1] = ranks[i];
    }
    // ranks[best] now is that of the pair one further on, which the merge has changed too.
    --count;
    if (best + 1 < count) ranks[best] = table_.Rank(out[best], out[best + 1]);
    if (best > 0) ranks[best - 1] = table_.Rank(out[best - 1], out[best]);
  }
  return out + count;
}

int32_t* BpeEncoder::EncodeLong(const char* piece, size_t length, int32_t* out) {
  DF_CHECK(length < size_t{1} << 31);
  const auto count = static_cast<int32_t>(length);
  nodes_.resize(length);
  heap_.clear();
  for (int32_t i = 0; i < count; ++i) {
    nodes_[i] = {table_.byte_ids()[static_cast<unsigned char>(piece[i])], BpeTable::kNoRank, i - 1,
                 i + 1};
  }
  nodes_[count - 1].next = -1;
  // Updates the rank of the pair that starts at `at`; entries of the heap with another rank are
  // out of date and are skipped when they come up.
  const auto find_rank = [this](int32_t at) {
    Node& node = nodes_[at];
    node.rank = node.next < 0 ? BpeTable::kNoRank : table_.Rank(node.id, nodes_[node.next].id);
    return node.rank != BpeTable::kNoRank;
  };
  const auto entry = [this](int32_t at) {
    return uint64_t{nodes_[at].rank} << 32 | static_cast<uint32_t>(at);
  };
  const auto push = [&](int32_t at) {
    if (!find_rank(at)) return;
    heap_.push_back(entry(at));
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  };
  for (int32_t i = 0; i < count; ++i) {
    if (find_rank(i)) heap_.push_back(entry(i));
  }
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const uint64_t top = heap_.back();
    heap_.pop_back();
    ++long_merge_steps_;
    const auto at = static_cast<int32_t>(top & UINT32_MAX);
    Node& node = nodes_[at];
    if (node.rank != top >> 32) continue;
    node.id = table_.Result(node.rank);
    Node& gone = nodes_[node.next];
    gone.rank = BpeTable::kNoRank;
    node.next = gone.next;
    if (node.next >= 0) nodes_[node.next].previous = at;
    push(at);
    if (node.previous >= 0) push(node.previous);
  }
  for (int32_t at = 0; at >= 0; at = nodes_[at].next) *out++ = nodes_[at].id;
  return out;
}

}  // namespace denseformer
