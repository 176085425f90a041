// One pass through the depth, and how it follows autograd.
//
// The gradient of X_j is a sum over every module that reads it. Handed down source by source it
// would be one full-size tensor for each (module, source) pair, so the graph is built to pull:
//
//   W = all weights contiguous           plain operations
//   t_j = Enter(X_j, W)                   backward: dX_j = sum over readers i of alpha_ij dY_i,
//                                                   dW_ij = <X_j, dY_i>
//   Y_i = Average(t_j for j in S_i)       backward: keeps dY_i for the Enter nodes
//
// The t_j are empty tensors: they only make autograd run every Average that read X_j before Enter.
// The nodes share a PassData with the detached sources and, during a backward pass, the dY_i, each
// of which goes when its last source has read it, or at the end of that backward pass.
#ifndef DENSEFORMER_TORCH_DEPTH_PASS_H_
#define DENSEFORMER_TORCH_DEPTH_PASS_H_

#include <denseformer_torch/dwa.h>
#include <torch/custom_class.h>
#include <torch/torch.h>

#include <mutex>
#include <vector>

#include "denseformer/depth_pattern.h"
#include "kernels/dwa/dwa.h"

namespace denseformer::pytorch {

using Sources = std::vector<std::vector<int64_t>>;

DepthPattern PatternOf(const Sources& sources);

// Whether the fused kernels take this tensor.
bool Fusible(const at::Tensor& x);

// View of a contiguous tensor as the kernels see it.
Tensor Matrix(const at::Tensor& x);

class PassData : public ::torch::CustomClassHolder {
 public:
  // x: X_0, for shape and dtype.
  PassData(const DepthPattern& pattern, const at::Tensor& x, const at::Tensor& weights);

  const DepthPattern& pattern() const { return pattern_; }
  const at::Tensor& x(int depth) const { return x_[depth]; }
  at::Tensor alphas(int depth) const;

  void Enter(int depth, const at::Tensor& x);
  at::Tensor Forward(int depth);
  // Takes dY_depth for the backward pass under way on this thread.
  static void KeepGradient(const c10::intrusive_ptr<PassData>& data, int depth,
                           const at::Tensor& dy);
  // dX_depth; dalpha is added to dweights where that is defined.
  at::Tensor Backward(int depth, const at::Tensor& dweights);

 private:
  void CheckUnmodified(int depth) const;
  void DropGradients();

  DepthPattern pattern_;
  at::Tensor weights_;          // fp32 [all], detached
  std::vector<int64_t> first_;  // [depths + 1]: of the weights of depth i
  std::vector<at::Tensor> x_;   // detached, contiguous
  std::vector<int64_t> versions_;
  Arena arena_;
  DepthAverager averager_;
  std::vector<const float*> alphas_;
  std::vector<Tensor> history_;

  std::mutex mutex_;  // of what follows: backward passes may run on other threads
  std::vector<at::Tensor> dy_;
  std::vector<size_t> unread_;  // sources that have not read dy_[i] yet
  bool cleaning_ = false;       // DropGradients is due at the end of the backward pass
};

class DepthPass : public ::torch::CustomClassHolder {
 public:
  // weights: of all modules, contiguous, in the order of depth.
  DepthPass(Sources sources, const at::Tensor& x, const at::Tensor& weights);

  // X of depth block_idx + 1, which must be the next -> Y of that depth. Of a finished pass any
  // depth may be asked again: an activation checkpoint recomputes.
  at::Tensor Next(const at::Tensor& x, int64_t block_idx);
  bool finished() const { return next_ == static_cast<int64_t>(sources_.size()); }

 private:
  void CheckInput(const at::Tensor& x, int64_t block_idx) const;
  void Take(const at::Tensor& x);
  at::Tensor Plain(int64_t depth, const at::Tensor& newest) const;

  Sources sources_;
  std::vector<int64_t> first_;  // of the weights of depth i
  at::Tensor weights_;          // with its graph
  bool grad_enabled_;
  at::Tensor like_;                    // X_0, detached, for shape, dtype and device
  c10::intrusive_ptr<PassData> data_;  // null: plain operations
  std::vector<at::Tensor> entered_;    // t_j, or X_j itself for plain operations
  int64_t next_ = 0;
};

}  // namespace denseformer::pytorch

#endif  // DENSEFORMER_TORCH_DEPTH_PASS_H_
