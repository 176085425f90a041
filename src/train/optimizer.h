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
#include <span>
#include <vector>

#include "dist/collectives.h"
#include "io/run_directory.h"
#include "model/model.h"
#include "tensor/storage.h"
#include "train/options.h"

namespace denseformer {

class Optimizer {
 public:
  // The model must outlive it. It updates the elements `owned` of the buffer of all parameters;
  // empty: all of them. `moments` are the caller's, as many elements as that, the ranges one after
  // the other, and must outlive it too; empty: it allocates its own.
  Optimizer(Model& model, const TrainOptions& options, const Moments& moments = Moments(),
            std::span<const Range> owned = {});

  // Sum of squares of the gradient over the owned parameters that step `step` (from 0) trains; not
  // finite where any of them is not. Gradients of frozen parameters become 0. matrix_squares:
  // gradient_norm.h; not used where not all parameters are owned.
  double SquaredGradientNorm(int64_t step, double matrix_squares);

  // One update of the owned parameters with gradients multiplied by `gradient_scale`. Where all are
  // owned the model's packed weights are up to date afterwards.
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

  // A range of one parameter that is owned, and where its moments begin.
  struct Piece {
    const Parameter* parameter;
    int64_t begin, end, moment;
  };

  Model& model_;
  TrainOptions options_;
  bool all_;                   // whether all parameters are owned, without pieces
  std::vector<Piece> pieces_;  // else
  Storage first_, second_;     // empty where the caller keeps the moments
  Moments moments_;
  int64_t updates_ = 0, dwa_updates_ = 0;
};

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_OPTIMIZER_H_
