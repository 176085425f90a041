// Attention of a few new tokens of several sequences against their cached keys and values.
#ifndef DENSEFORMER_KERNELS_ATTENTION_ATTENTION_DECODE_H_
#define DENSEFORMER_KERNELS_ATTENTION_ATTENTION_DECODE_H_

#include <cstdint>
#include <span>

#include "tensor/tensor.h"

namespace denseformer {

// The new tokens of one sequence.
struct DecodeQuery {
  int64_t row;    // of the first new token in qkv
  int64_t count;  // new tokens
  int64_t start;  // tokens that the cache holds already
  Tensor keys;    // [H, capacity, head_size], of the dtype of qkv; capacity >= start + count
  Tensor values;  // the same
};

// Copies k and v of the new tokens into the caches at [start, start + count), then attends from
// each new token to everything up to itself. qkv [N, 3 * D] rotated; out [N, D] of the same dtype.
void AttentionDecode(const Tensor& qkv, int64_t heads, std::span<const DecodeQuery> queries,
                     const Tensor& out);

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_ATTENTION_ATTENTION_DECODE_H_
