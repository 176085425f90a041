// Attention of new tokens of several sequences against their cached keys and values.
//
// The cache of a sequence is a list of pages of kKvPageTokens tokens. A page holds, per block of
// the model, in units of n = 1 fp32 or n = 2 bf16, which follow each other in a sum: keys
// [H, head_size / n, kKvPageTokens, n] (transposed, so that the scores of a page are vectors over
// its tokens) and values [H, kKvPageTokens / n, padded head_size, n].
//
// Every sum runs in one fixed order: a score over the elements of the head, an output over the
// positions from the oldest to the newest. So the result of a token has the same bits whether it
// comes alone or in a chunk with others, and whatever other sequences are in the call.
#ifndef DENSEFORMER_KERNELS_ATTENTION_ATTENTION_DECODE_H_
#define DENSEFORMER_KERNELS_ATTENTION_ATTENTION_DECODE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/tensor.h"

namespace denseformer {

inline constexpr int64_t kKvPageTokens = 32;

// Bytes of one block's keys and values in a page.
size_t KvPageBlockBytes(int64_t heads, int64_t head_size, DType dtype);

// The new tokens of one sequence.
struct DecodeQuery {
  int64_t row;    // of the first new token in qkv
  int64_t count;  // new tokens
  int64_t start;  // tokens that the pages hold already
  // The pages of positions [0, start + count), in order. Caller keeps ownership; the pages of the
  // new positions must not be shared with another query of the call.
  std::span<std::byte* const> pages;
};

struct DecodeAttention {
  Tensor qkv;          // [N, 3 * D], fp32 or bf16, before rotary embeddings; not changed
  int64_t heads;       //
  Tensor rotary;       // [positions, head_size] (rotary.h); at least start + count positions
  size_t page_offset;  // where the block's keys and values begin in each page
  std::span<const DecodeQuery> queries;
  Tensor out;  // [N, D] of the dtype of qkv
};

// Applies rotary embeddings to q and k of the new tokens, stores k and v at positions
// [start, start + count) of the pages, then attends from each new token to everything up to itself.
void AttentionDecode(const DecodeAttention& attention);

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_ATTENTION_ATTENTION_DECODE_H_
