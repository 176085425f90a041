#include "model/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/rotary.h"
#include "model/activations.h"

namespace denseformer {
namespace {

// Pages of a slab: so many that the part of a huge page that is lost at its end is little.
int64_t SlabPages(size_t page_bytes) {
  constexpr size_t kSlabBytes = size_t{64} << 20;
  return static_cast<int64_t>(std::max<size_t>(1, kSlabBytes / page_bytes));
}

// What a slab of `pages` pages takes.
size_t SlabBytes(int64_t pages, size_t page_bytes) {
  return Storage::TakenBytes(static_cast<size_t>(pages) * page_bytes);
}

size_t RotaryBytes(const ModelConfig& config) {
  return static_cast<size_t>(config.seq_len) * static_cast<size_t>(config.head_size()) *
         sizeof(float);
}

}  // namespace

KvPool::KvPool(const ModelConfig& config, DType dtype, int64_t most_pages)
    : block_bytes_(KvPageBlockBytes(config.n_head, config.head_size(), dtype)),
      page_bytes_(PageBytes(config, dtype)),
      slab_pages_(SlabPages(page_bytes_)),
      most_pages_(most_pages),
      rotary_memory_(RotaryBytes(config)),
      rotary_(static_cast<float*>(rotary_memory_.data()), {config.seq_len, config.head_size()}) {
  DF_CHECK(most_pages >= 1);
  FillRotaryTable(kRotaryBase, rotary_);
}

size_t KvPool::PageBytes(const ModelConfig& config, DType dtype) {
  return static_cast<size_t>(config.n_layer) *
         KvPageBlockBytes(config.n_head, config.head_size(), dtype);
}

size_t KvPool::TakenBytes(const ModelConfig& config, DType dtype, int64_t pages) {
  const size_t page = PageBytes(config, dtype);
  const int64_t slab = SlabPages(page);
  return static_cast<size_t>(pages / slab) * SlabBytes(slab, page) + SlabBytes(pages % slab, page) +
         Storage::TakenBytes(RotaryBytes(config));
}

int64_t KvPool::PagesWithin(const ModelConfig& config, DType dtype, size_t bytes) {
  const size_t page = PageBytes(config, dtype), rotary = Storage::TakenBytes(RotaryBytes(config));
  if (bytes < rotary) return 0;
  const int64_t slab = SlabPages(page);
  const size_t whole = SlabBytes(slab, page), rest = (bytes - rotary) % whole;
  int64_t more = static_cast<int64_t>(rest / page);
  while (SlabBytes(more, page) > rest) --more;
  return static_cast<int64_t>((bytes - rotary) / whole) * slab + more;
}

int KvPool::Take() {
  DF_CHECK_MSG(used_ < most_pages_, "all {} pages are in use", most_pages_);
  if (free_.empty()) {
    const int64_t page = std::ssize(holders_);
    if (page % slab_pages_ == 0) {
      const int64_t pages = std::min(slab_pages_, most_pages_ - page);
      slabs_.push_back(Storage::Unwritten(static_cast<size_t>(pages) * page_bytes_));
    }
    holders_.push_back(0);
    free_.push_back(static_cast<int>(page));
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
