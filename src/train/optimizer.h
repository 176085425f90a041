// AdamW over the parameter table: which parameters decay, which are frozen, and how many updates
// each has had.
//
// Delayed DWA: until step `dwa_start` the DWA weights are frozen. Their gradients are dropped (and
// do not count in the norm), they neither move nor decay, and their moments and their count of
// updates stay 0; so training them begins as if they had been made at that step (in PyTorch: as if
// their gradients had been None).
#ifndef DENSEFORMER_TRAIN_OPTIMIZER_H_
#define DENSEFORMER_TRAIN_OPTIMIZER_H_

#include <cstdint>

#include "io/run_directory.h"
#include "model/model.h"
#include "tensor/storage.h"
#include "train/options.h"

namespace denseformer {

class Optimizer {
 public:
  // The model must outlive it. `moments` are the caller's, of model.weights().size() elements each,
  // and must outlive it too; empty: it allocates its own.
  Optimizer(Model& model, const TrainOptions& options, const Moments& moments = Moments());

  // Sum of squares of the gradient over the parameters that step `step` (from 0) trains; not finite
  // where any of them is not. Gradients of frozen parameters become 0. matrix_squares:
  // gradient_norm.h.
  double SquaredGradientNorm(int64_t step, double matrix_squares);

  // One update with gradients multiplied by `gradient_scale`; the model's packed weights are up to
  // date afterwards.
  void Update(int64_t step, double rate, double gradient_scale);

  const Moments& moments() const { return moments_; }
  // Updates that the weights have had, and those of the DWA weights among them (delayed DWA).
  int64_t updates() const { return updates_; }
  int64_t dwa_updates() const { return dwa_updates_; }
  void SetUpdates(int64_t updates, int64_t dwa_updates);

 private:
  bool Frozen(const Parameter& parameter, int64_t step) const {
    return parameter.mixes() && step < options_.dwa_start;
  }

  Model& model_;
  TrainOptions options_;
  Storage first_, second_;  // empty where the caller keeps the moments
  Moments moments_;
  int64_t updates_ = 0, dwa_updates_ = 0;
};

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_OPTIMIZER_H_
