// Byte-level BPE: the tables of a tokenizer, and encoding with them.
//
// A piece of text starts as its bytes; the adjacent pair with the lowest rank (leftmost of equals)
// becomes one token, until no pair of neighbors is in the table.
#ifndef DENSEFORMER_DATA_BPE_H_
#define DENSEFORMER_DATA_BPE_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace denseformer {

inline constexpr const char* kEndOfTextName = "<|endoftext|>";

struct BpeMerge {
  int32_t left, right, result;
};

// What a tokenizer is. An id without a token has empty bytes.
struct TokenizerData {
  std::vector<std::string> tokens;         // bytes of each id; special tokens: their name
  std::vector<BpeMerge> merges;            // by rank
  std::map<std::string, int32_t> special;  // name -> id
  std::array<int32_t, 256> byte_ids{};     // id of each single byte
  int32_t end_of_text = -1;
};

// The ranks of all pairs; immutable after construction.
class BpeTable {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;

  explicit BpeTable(const TokenizerData& data);

  uint32_t Rank(int32_t left, int32_t right) const {
    const uint64_t key = Key(left, right);
    for (size_t slot = Slot(key);; slot = (slot + 1) & mask_) {
      if (slots_[slot].key == key) return slots_[slot].rank;
      if (slots_[slot].key == kEmpty) return kNoRank;
    }
  }
  int32_t Result(uint32_t rank) const { return results_[rank]; }
  bool has_merges() const { return !results_.empty(); }
  const std::array<int32_t, 256>& byte_ids() const { return byte_ids_; }

 private:
  static constexpr uint64_t kEmpty = UINT64_MAX;
  struct Entry {
    uint64_t key = kEmpty;
    uint32_t rank = kNoRank;
  };
  static uint64_t Key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t Slot(uint64_t key) const { return (key * 0x9E3779B97F4A7C15u) >> shift_; }

  std::vector<Entry> slots_;
  size_t mask_ = 0;
  int shift_ = 0;
  std::vector<int32_t> results_;
  std::array<int32_t, 256> byte_ids_;
};

// Encodes with scratch memory and a cache of recent pieces. For one thread at a time; the table
// must outlive it.
class BpeEncoder {
 public:
  explicit BpeEncoder(const BpeTable& table);

  // Appends the ids of `text`, special tokens as text.
  void Encode(std::string_view text, std::vector<int32_t>* ids);

  // Merges done so far by the method for long pieces: what its time is proportional to.
  int64_t long_merge_steps() const { return long_merge_steps_; }

 private:
  // A cache line: pieces of up to 23 bytes with up to 9 tokens. The last byte of the key is the
  // length of the piece, so no entry in use is all zero.
  struct alignas(64) CacheEntry {
    uint64_t key[3] = {};
    int32_t count = 0;
    int32_t ids[9];
  };

  int32_t* EncodePiece(const char* piece, size_t length, const char* text_end, int32_t* out);
  int32_t* EncodeShort(const char* piece, size_t length, int32_t* out);
  int32_t* EncodeLong(const char* piece, size_t length, int32_t* out);

  const BpeTable& table_;
  std::vector<CacheEntry> cache_;
  int64_t long_merge_steps_ = 0;
  // EncodeLong: a doubly linked list over the bytes, and a heap of (rank, position).
  struct Node {
    int32_t id;
    uint32_t rank;  // of the pair that starts here
    int32_t previous, next;
  };
  std::vector<Node> nodes_;
  std::vector<uint64_t> heap_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_DATA_BPE_H_
