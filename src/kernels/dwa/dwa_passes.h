// The two passes over memory behind the depth-weighted average (dwa.h), each over a range of
// elements on the calling thread. An element's value does not depend on the range that it is
// computed in.
//
// Sums start from -0, the neutral element of addition: -0 + x is x for every x.
#ifndef DENSEFORMER_KERNELS_DWA_DWA_PASSES_H_
#define DENSEFORMER_KERNELS_DWA_DWA_PASSES_H_

#include <cstdint>

#include "tensor/dtype.h"

namespace denseformer {

// Sums at most that one pass adds up: a leader and its followers (dwa_schedule.h).
inline constexpr int kMostAverages = 8;
inline constexpr int kMostPulls = 4;

// sum_o = (partial, o = 0) + sum over k of weights[k][o] * sources[k] + (newest, o = 0), in this
// order; terms that are skipped take no part.
struct AveragePass {
  int sources = 0;
  const void* const* source = nullptr;  // [sources] of dtype
  DType dtype = DType::kF32;
  const float* weights = nullptr;    // [sources, kMostAverages]
  const uint8_t* skipped = nullptr;  // [sources]: bit o: not in sum_o
  int outputs = 1;
  float* output[kMostAverages] = {};  // output[0] may alias partial or newest
  const float* partial = nullptr;     // null: none
  const float* newest = nullptr;      // null: none
  float newest_weight = 0;
  bool empty = false;  // no term takes part in sum_0: it is 0
  // The outputs but the first use non-temporal stores where they are aligned; then the thread
  // calls hwy::FlushStream before others read them.
  bool past = false;
};
void RunAveragePass(const AveragePass& pass, int64_t begin, int64_t end);

// What module k has to do with target t.
struct PullPair {
  float weight = 0;  // alpha
  bool sum = false;  // weight * dy takes part in the sum: the module reads it, weight not 0
  bool dot = false;  // the dot product is wanted
};

// sum_t = (partial, t = 0) + sum over modules k of weight[k][t] * dy[k], in this order; output_t =
// sum_t, or output_0 + sum_0 with `add`. dots[k][t] = <dy[k], x[t]> over the range where wanted.
struct PullPass {
  int modules = 0;
  const void* const* dy = nullptr;  // [modules] of dy_dtype
  DType dy_dtype = DType::kF32;     // bf16 only where the history is too
  const PullPair* pairs = nullptr;  // [modules, kMostPulls]
  int targets = 1;
  const void* x[kMostPulls] = {};  // of dtype
  DType dtype = DType::kF32;
  float* output[kMostPulls] = {};
  const float* partial = nullptr;
  bool add = false;
  bool empty = false;  // no term takes part in sum_0: it is 0, and output_0 left alone with `add`
};
// dots [modules, kMostPulls], overwritten. Uses the scratch memory of the thread.
void RunPullPass(const PullPass& pass, int64_t begin, int64_t end, double* dots);

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_DWA_DWA_PASSES_H_
