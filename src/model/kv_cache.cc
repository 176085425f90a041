#include "model/kv_cache.h"

#include <cstring>
#include <utility>

#include "kernels/rotary.h"
#include "model/activations.h"

namespace denseformer {

KvPool::KvPool(const ModelConfig& config, DType dtype, int64_t most_pages)
    : block_bytes_(KvPageBlockBytes(config.n_head, config.head_size(), dtype)),
      page_bytes_(PageBytes(config, dtype)),
      most_pages_(most_pages),
      rotary_memory_(static_cast<size_t>(config.seq_len) * config.head_size() * sizeof(float)),
      rotary_(static_cast<float*>(rotary_memory_.data()), {config.seq_len, config.head_size()}) {
  DF_CHECK(most_pages >= 1);
  FillRotaryTable(kRotaryBase, rotary_);
}

size_t KvPool::PageBytes(const ModelConfig& config, DType dtype) {
  return static_cast<size_t>(config.n_layer) *
         KvPageBlockBytes(config.n_head, config.head_size(), dtype);
}

int KvPool::Take() {
  DF_CHECK_MSG(used_ < most_pages_, "all {} pages are in use", most_pages_);
  if (free_.empty()) {
    pages_.emplace_back(page_bytes_);
    holders_.push_back(0);
    free_.push_back(static_cast<int>(pages_.size()) - 1);
  }
  const int page = free_.back();
  free_.pop_back();
  holders_[page] = 1;
  ++used_;
  return page;
}

void KvPool::Drop(int page) {
  if (--holders_[page] > 0) return;
  free_.push_back(page);
  --used_;
}

KvSequence::KvSequence(KvSequence&& other) noexcept
    : pool_(other.pool_),
      length_(std::exchange(other.length_, 0)),
      pages_(std::exchange(other.pages_, {})),
      data_(std::exchange(other.data_, {})) {}

KvSequence& KvSequence::operator=(KvSequence&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(length_, other.length_);
  std::swap(pages_, other.pages_);
  std::swap(data_, other.data_);
  return *this;
}

void KvSequence::Append(int page) {
  pages_.push_back(page);
  data_.push_back(pool_->data(page));
}

void KvSequence::SetLength(int64_t length) {
  DF_CHECK(length >= 0 && length <= held_pages() * kKvPageTokens);
  while (held_pages() > KvPagesFor(length)) {
    pool_->Drop(pages_.back());
    pages_.pop_back();
    data_.pop_back();
  }
  length_ = length;
}

void KvSequence::Reserve(int64_t tokens) {
  while (held_pages() < KvPagesFor(tokens)) Append(pool_->Take());
  for (int64_t page = length_ / kKvPageTokens; page < held_pages(); ++page) {
    DF_CHECK(pool_->holders_[pages_[static_cast<size_t>(page)]] == 1);
  }
}

void KvSequence::Share(const KvSequence& other, int64_t tokens) {
  DF_CHECK(pool_ == other.pool_ && pages_.empty() && tokens <= other.length_);
  const size_t whole = static_cast<size_t>(tokens / kKvPageTokens);
  for (size_t n = 0; n < whole; ++n) {
    ++pool_->holders_[other.pages_[n]];
    Append(other.pages_[n]);
  }
  if (tokens % kKvPageTokens != 0) {
    Append(pool_->Take());
    std::memcpy(data_.back(), other.data_[whole], pool_->page_bytes_);
  }
  length_ = tokens;
}

}  // namespace denseformer
