// Depth-weighted average over a depth history: the engine behind include/denseformer/dwa.h.
//
//   forward   Y_i  = sum over j in S_i of alpha_ij X_j
//   backward  dX_j = (dY_j where depth j has no module) + sum over readers i of alpha_ij dY_i
//             dalpha_ij = <X_j, dY_i>
//
// A source whose weight is exactly 0 takes no part in a sum: it is not read, and no infinity or NaN
// in it reaches the average (it reaches the output all the same, through the residual stream). So
// at the initial weights Y_i is X_i bit for bit, -0 and NaN included, and pruned weights cost
// nothing. dalpha is taken for every source, whatever its weight.
//
// Sums run from the oldest source to the newest, in fp32 (fused multiply-add where the CPU has it);
// dX_j runs from the deepest reader to the nearest, dY_j of a depth without module last.
//
// Forward looks ahead: at every G-th module one pass over the old history gives that average and
// the fp32 partial sums of the next modules, which then add only the newest sources. Backward
// pulls: one pass at depth j reads X_j and every dY_i that used it.
#ifndef DENSEFORMER_KERNELS_DWA_DWA_H_
#define DENSEFORMER_KERNELS_DWA_DWA_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "denseformer/depth_pattern.h"
#include "kernels/dwa/dwa_schedule.h"
#include "tensor/storage.h"
#include "tensor/tensor.h"

namespace denseformer {

// How far the passes look ahead (dwa_schedule.h). The results are the same bits whatever it is.
struct AveragerOptions {
  LookAhead forward = kForwardLookAhead;
  LookAhead backward = kBackwardLookAhead;
};
// For averagers that import partial sums.
inline constexpr AveragerOptions kNoLookAhead = {
    .forward = {.group = 1, .slots = 0, .worth = 1},
    .backward = {.group = 1, .slots = 0, .worth = 1},
};

// Plans and runs the averages of one model over up to `rows` rows of `cols` elements. Holds scratch
// memory only; the caller keeps history, weights and gradients. One object serves one pass at a
// time.
//
// Several processes may share an average: each sums the sources that it holds (Export) and the next
// one starts from that sum (Import). As the order of the terms stays the same, so do the bits.
class DepthAverager {
 public:
  // Takes its scratch from `arena` (which may be measuring).
  DepthAverager(const DepthPattern& pattern, int64_t rows, int64_t cols, Arena& arena,
                const AveragerOptions& options = AveragerOptions());
  ~DepthAverager();
  DepthAverager(DepthAverager&&) noexcept;

  // alphas[i] points to the weights of the module after block i, in the order of
  // pattern.sources(i); null where there is none; size depth + 1. The pointers must stay valid
  // through the pass.
  void StartForward(std::span<const float* const> alphas);

  // Y of the module after block `depth`; to be called for every module in ascending order.
  // newest: X_depth in fp32 [N, D]; history[j] (j < depth): X_j, fp32 or bf16 [N, D], for every
  // source; y: fp32 [N, D], may alias newest.
  void Forward(int depth, const Tensor& newest, std::span<const Tensor> history, const Tensor& y);

  // The same in two steps, for a caller that fuses it with other work on the same rows: after
  // PrepareForward (arguments as above; newest need not be filled yet) RunForward computes elements
  // [begin, end) of Y and may run on many threads at once, until every element is done; each of
  // them then calls hwy::FlushStream.
  void PrepareForward(int depth, const Tensor& newest, std::span<const Tensor> history,
                      const Tensor& y);
  void RunForward(int64_t begin, int64_t end) const;

  // Gradient of X_depth; to be called for every depth from d down to 0.
  // history[j]: X_j as the averages read it, fp32 or bf16 [N, D], for every source (also the
  // newest, which Forward took apart). dy[i]: dY_i fp32 [N, D] of every module i >= depth; they
  // must stay unchanged down to their oldest source. dx: fp32 [N, D]: where `depth` has a module it
  // is overwritten, else it holds dY_depth and is added to; where no module reads X_depth it is
  // left alone. dalphas[i]: as alphas, added to; null where that gradient is not wanted.
  // The same bits whatever the number of threads.
  void Backward(int depth, std::span<const Tensor> history, std::span<const Tensor> dy,
                std::span<const float* const> alphas, std::span<float* const> dalphas,
                const Tensor& dx);

  // partial [N, D] fp32 = start + sum over the sources j of module `depth` with begin <= j < end of
  // alpha_ij X_j, after StartForward. `start` is what an earlier process exported; empty: nothing.
  // It may alias partial. history: as for Forward, for these sources.
  void ExportForward(int depth, int begin, int end, std::span<const Tensor> history,
                     const Tensor& start, const Tensor& partial);
  // The next Forward of module `depth` starts from `partial`, which covers its sources j < end;
  // they need not be in the history. Needs kNoLookAhead. `partial` must stay valid until then.
  void ImportForward(int depth, int end, const Tensor& partial);

  // partial [N, D] fp32 = start + sum over the modules i that read X_depth with begin <= i < end,
  // deepest first, of alpha_ij dY_i; adds <X_depth, dY_i> to their dalphas. The other arguments are
  // as for Backward.
  void ExportBackward(int depth, int begin, int end, std::span<const Tensor> history,
                      std::span<const Tensor> dy, std::span<const float* const> alphas,
                      std::span<float* const> dalphas, const Tensor& start, const Tensor& partial);
  // The next Backward of `depth` starts from `partial`, which covers the modules i >= begin; their
  // dY_i need not be given. Needs kNoLookAhead. `partial` must stay valid until then.
  void ImportBackward(int depth, int begin, const Tensor& partial);

 private:
  void RunAverage(int64_t count) const;

  struct Plan;
  std::unique_ptr<Plan> plan_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_DWA_DWA_H_
