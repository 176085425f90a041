// Attention of one sequence and one head: what attention.cc calls for each, on the path that fits
// the CPU and the element type.
#ifndef DENSEFORMER_KERNELS_ATTENTION_ATTENTION_HEAD_H_
#define DENSEFORMER_KERNELS_ATTENTION_ATTENTION_HEAD_H_

#include <cstdint>

#include "kernels/dropout.h"
#include "tensor/dtype.h"

namespace denseformer {

// E is float or bf16. Row i of q sees rows [0, i] of k and v.
template <class E>
struct AttentionHead {
  const E* q;
  const E* k;
  const E* v;
  int64_t stride;      // elements between rows of q, of k and of v
  int64_t out_stride;  // between rows of out
  int64_t length;      // rows of q, k and v
  int64_t head_size;   // elements of a row
  Dropout dropout;
  uint64_t dropout_index;  // of row 0, column 0
  bool more = false;       // the head whose rows lie behind these in memory is the next one
};

template <class E>
struct AttentionHeadGradients {
  const E* out;
  const E* dout;
  const float* lse;  // [T]
  E* dq;             // rows of dq, dk, dv are as far apart as those of q, k, v
  E* dk;
  E* dv;
};

// The path that the CPU features and the values allow. lse [length] or null.
void RunAttentionHead(const AttentionHead<float>& head, float* out, float* lse);
void RunAttentionHead(const AttentionHead<bf16>& head, bf16* out, float* lse);

// By Highway, on any CPU.
void AttentionHeadForward(const AttentionHead<float>& head, float* out, float* lse);
void AttentionHeadForward(const AttentionHead<bf16>& head, bf16* out, float* lse);
void AttentionHeadBackward(const AttentionHead<float>& head,
                           const AttentionHeadGradients<float>& gradients);
void AttentionHeadBackward(const AttentionHead<bf16>& head,
                           const AttentionHeadGradients<bf16>& gradients);

// The same on tiles (kernels/amx.h), with CpuFeature::kAvx512Bf16. Returns false, with nothing of
// value written, where an operand is not finite: a tile above the diagonal would carry it into the
// past.
bool AttentionHeadForwardTiles(const AttentionHead<bf16>& head, bf16* out, float* lse);
bool AttentionHeadBackwardTiles(const AttentionHead<bf16>& head,
                                const AttentionHeadGradients<bf16>& gradients);

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_ATTENTION_ATTENTION_HEAD_H_
