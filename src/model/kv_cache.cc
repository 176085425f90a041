#include "model/kv_cache.h"

#include <cstring>

#include "kernels/rotary.h"
#include "model/activations.h"

namespace denseformer {
namespace {

Shape CacheShape(const ModelConfig& config, int slots, int64_t capacity) {
  return {config.n_layer, slots, 2, config.n_embd * capacity};
}

}  // namespace

KvCache::KvCache(const Model& model, int slots, int64_t capacity)
    : heads_(model.config().n_head),
      capacity_(capacity),
      head_size_(model.config().head_size()),
      blocks_(model.config().n_layer),
      dtype_(model.compute()),
      arena_(Bytes(model.config(), model.compute(), slots, capacity)),
      lengths_(slots) {
  DF_CHECK(slots >= 1 && capacity >= 1 && capacity <= model.config().seq_len);
  all_ = arena_.Allocate(dtype_, CacheShape(model.config(), slots, capacity));
  rotary_ = arena_.Allocate(DType::kF32, {capacity, head_size_});
  FillRotaryTable(kRotaryBase, rotary_);
}

size_t KvCache::Bytes(const ModelConfig& config, DType compute, int slots, int64_t capacity) {
  Arena measure;
  measure.Allocate(compute, CacheShape(config, slots, capacity));
  measure.Allocate(DType::kF32, {capacity, config.head_size()});
  return measure.used();
}

void KvCache::SetLength(int slot, int64_t length) {
  DF_CHECK(length >= 0 && length <= capacity_);
  lengths_[slot] = length;
}

Tensor KvCache::Part(int block, int slot, int part) const {
  DF_CHECK(block >= 1 && block <= blocks_ && slot >= 0 && slot < slots());
  const int64_t row = (int64_t{block} - 1) * slots() * 2 + slot * 2 + part;
  return all_.Rows(row, 1).Reshape({heads_, capacity_, head_size_});
}

void KvCache::CopySlot(int from, int to) {
  if (from == to) return;
  const size_t row = static_cast<size_t>(lengths_[from] * head_size_) * SizeOf(dtype_);
  const size_t stride = static_cast<size_t>(capacity_ * head_size_) * SizeOf(dtype_);
  for (int block = 1; block <= blocks_; ++block) {
    for (int part = 0; part < 2; ++part) {
      const char* source = static_cast<const char*>(Part(block, from, part).raw());
      char* destination = static_cast<char*>(Part(block, to, part).raw());
      for (int64_t h = 0; h < heads_; ++h)
        std::memcpy(destination + h * stride, source + h * stride, row);
    }
  }
  lengths_[to] = lengths_[from];
}

}  // namespace denseformer
