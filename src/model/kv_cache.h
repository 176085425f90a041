// Keys and values of the tokens that sequences have seen, for every block, in pages.
//
// A page holds kKvPageTokens tokens of all blocks (attention_decode.h gives its layout); keys are
// stored rotated. A sequence owns a list of pages that grows and shrinks without touching those of
// others; full pages with a common prefix are shared. The depth history of a token is not kept: the
// averages of a token read outputs of the same token only. One thread at a time uses a pool and its
// sequences.
#ifndef DENSEFORMER_MODEL_KV_CACHE_H_
#define DENSEFORMER_MODEL_KV_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "denseformer/config.h"
#include "kernels/attention/attention_decode.h"
#include "tensor/storage.h"

namespace denseformer {

inline constexpr int64_t KvPagesFor(int64_t tokens) {
  return (tokens + kKvPageTokens - 1) / kKvPageTokens;
}

class KvPool {
 public:
  // Up to `most_pages` pages of keys and values of type `dtype`; memory is taken page by page when
  // it is needed, and kept for later sequences.
  KvPool(const ModelConfig& config, DType dtype, int64_t most_pages);

  static size_t PageBytes(const ModelConfig& config, DType dtype);
  // What a pool takes when `pages` pages are in use: theirs, what is lost at the ends of slabs, and
  // the table of rotary embeddings.
  static size_t TakenBytes(const ModelConfig& config, DType dtype, int64_t pages);
  // The most pages that take at most `bytes`; 0 where there is no room for one.
  static int64_t PagesWithin(const ModelConfig& config, DType dtype, size_t bytes);

  int64_t most_pages() const { return most_pages_; }
  // Pages that no sequence holds.
  int64_t free_pages() const { return most_pages_ - used_; }
  // Where the keys and values of block 1..d begin in a page.
  size_t BlockOffset(int block) const { return static_cast<size_t>(block - 1) * block_bytes_; }
  // cos and sin of every position, [seq_len, head_size] (rotary.h).
  const Tensor& rotary() const { return rotary_; }

 private:
  friend class KvSequence;
  // What a new page holds is anything. The system gives and clears its memory where it is first
  // written, which all threads do, and not here, where one would.
  int Take();
  void Drop(int page);
  std::byte* data(int page) const {
    return static_cast<std::byte*>(slabs_[static_cast<size_t>(page / slab_pages_)].data()) +
           static_cast<size_t>(page % slab_pages_) * page_bytes_;
  }

  size_t block_bytes_, page_bytes_;
  int64_t slab_pages_, most_pages_, used_ = 0;
  // Blocks of slab_pages_ pages, the last one maybe of fewer: pages of their own would each be
  // rounded up to whole huge pages.
  std::vector<Storage> slabs_;
  std::vector<int> holders_;  // sequences that hold each page
  std::vector<int> free_;
  Storage rotary_memory_;
  Tensor rotary_;
};

// The keys and values of one sequence. The pool must outlive it.
class KvSequence {
 public:
  explicit KvSequence(KvPool& pool) : pool_(&pool) {}
  ~KvSequence() { SetLength(0); }
  KvSequence(KvSequence&& other) noexcept;
  KvSequence& operator=(KvSequence&& other) noexcept;

  KvPool& pool() const { return *pool_; }
  int64_t length() const { return length_; }
  int64_t held_pages() const { return static_cast<int64_t>(pages_.size()); }
  std::span<std::byte* const> pages() const { return data_; }

  // Forgets all but the first `length` tokens, or records that tokens were stored up to `length`;
  // pages beyond it are given back.
  void SetLength(int64_t length);
  // Takes pages until `tokens` tokens fit; those that will be written are held by this sequence
  // alone. The pool must have as many free pages as that takes.
  void Reserve(int64_t tokens);
  // Becomes the first `tokens` tokens of `other`: full pages shared, the rest copied. This sequence
  // must be empty.
  void Share(const KvSequence& other, int64_t tokens);

 private:
  void Append(int page);

  KvPool* pool_;
  int64_t length_ = 0;
  std::vector<int> pages_;
  std::vector<std::byte*> data_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_KV_CACHE_H_
