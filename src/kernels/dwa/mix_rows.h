// Rows of one token at several depths, mixed with weights of that token's own: what depth mixers
// (model/mixer.h) are made of. Each call works on one token on the calling thread.
//
// Sources are rows of `cols` elements, fp32 or bf16; everything else is fp32, and so are the sums,
// which run from the first source to the last. All outputs of a call are computed in one pass over
// its sources.
#ifndef DENSEFORMER_KERNELS_DWA_MIX_ROWS_H_
#define DENSEFORMER_KERNELS_DWA_MIX_ROWS_H_

#include <cstdint>

#include "tensor/dtype.h"

namespace denseformer {

// Outputs of one mix: the residual stream, q, k, v.
inline constexpr int kMostStreams = 4;

struct RowSources {
  int count = 0;
  const void* const* rows = nullptr;  // [count]
  DType dtype = DType::kF32;
};

// dots[k, v] = <source k, vector v>; dots [sources, vectors].
void RowDots(const RowSources& sources, int64_t cols, int vectors, const float* const* vector,
             float* dots);

// squares[k] = <source k, source k>.
void RowSquares(const RowSources& sources, int64_t cols, float* squares);

// output o = sum over k of weights[k, o] * source k + newest_weights[o] * newest, or output o plus
// that with `add`. Terms of weight exactly 0 take no part; without any other the output is 0.
struct RowMix {
  RowSources sources;
  const float* weights = nullptr;         // [sources, outputs]
  const float* newest = nullptr;          // null: none
  const float* newest_weights = nullptr;  // [outputs]
  int outputs = 1;                        // at most kMostStreams
  float* const* output = nullptr;         // [outputs]; any of them may alias newest
  bool add = false;
};
void MixRow(const RowMix& mix, int64_t cols);

// target k = sum over v of weights[k, v] * input v + self_weights[k] * source k, added to what it
// holds where add[k].
struct RowPush {
  RowSources sources;                   // as many as targets
  const float* self_weights = nullptr;  // [targets]; null: no such term
  int inputs = 1;                       // 1, 2, 4 or 8
  const float* const* input = nullptr;
  const float* weights = nullptr;  // [targets, inputs]
  float* const* target = nullptr;
  const uint8_t* add = nullptr;
};
void PushRow(const RowPush& push, int64_t cols);

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_DWA_MIX_ROWS_H_
