// Keys and values of the tokens that a sequence has seen, for every block.
//
// A cache has slots, one a sequence; each slot holds up to `capacity` tokens. Keys are stored
// rotated. The depth history of a token is not kept: the averages of a token read outputs of the
// same token only.
#ifndef DENSEFORMER_MODEL_KV_CACHE_H_
#define DENSEFORMER_MODEL_KV_CACHE_H_

#include <cstdint>
#include <vector>

#include "model/model.h"
#include "tensor/storage.h"

namespace denseformer {

class KvCache {
 public:
  // Capacity is at most the model's seq_len.
  KvCache(const Model& model, int slots, int64_t capacity);

  int slots() const { return static_cast<int>(lengths_.size()); }
  int64_t capacity() const { return capacity_; }
  // Tokens in a slot; a smaller length forgets the newest ones.
  int64_t length(int slot) const { return lengths_[slot]; }
  void SetLength(int slot, int64_t length);

  // [H, capacity, head_size] of block 1..d.
  Tensor keys(int block, int slot) const { return Part(block, slot, 0); }
  Tensor values(int block, int slot) const { return Part(block, slot, 1); }

  // Makes `to` hold what `from` holds.
  void CopySlot(int from, int to);

  // cos and sin of every position, [capacity, head_size] (rotary.h).
  const Tensor& rotary() const { return rotary_; }

  static size_t Bytes(const ModelConfig& config, DType compute, int slots, int64_t capacity);

 private:
  Tensor Part(int block, int slot, int part) const;

  int64_t heads_, capacity_, head_size_;
  int blocks_;
  DType dtype_;
  Arena arena_;
  Tensor all_;  // [d, slots, 2, H * capacity * head_size]
  Tensor rotary_;
  std::vector<int64_t> lengths_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_KV_CACHE_H_
