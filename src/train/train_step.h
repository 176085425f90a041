// One training step, shared by trainer, plan, benchmarks and tests:
//   accumulate  gradients of the mean loss over the passes of the step's batch
//   reduce      loss and gradients over all processes, where there are several
//   clip        by the norm of the gradient of the parameters that the step trains
//   update      AdamW; skipped where the loss or the norm is not finite
#ifndef DENSEFORMER_TRAIN_TRAIN_STEP_H_
#define DENSEFORMER_TRAIN_TRAIN_STEP_H_

#include <cstdint>
#include <span>

#include "base/function_ref.h"
#include "dist/collectives.h"
#include "model/activations.h"
#include "model/backward.h"
#include "model/batch.h"
#include "model/model.h"
#include "train/optimizer.h"
#include "train/options.h"
#include "train/pipeline.h"

namespace denseformer {

struct StepResult {
  double loss = 0;       // mean over the passes
  double own_loss = 0;   // this process's part of it
  double norm = 0;       // of the gradient, before clipping
  bool updated = false;  // false: loss or norm is not finite, and the weights are as before
};

// What several processes that share a step do with its loss and gradients.
class StepReducer {
 public:
  virtual ~StepReducer() = default;
  // The parameters that this process updates, as ranges of the buffer; empty: all of them.
  virtual std::span<const Range> owned() const { return {}; }
  // In the last pass: the gradients of the parameters of `block` are final, and may travel. Blocks
  // come from the last to the first; not at all where a pass before had no finite loss.
  virtual void BlockDone(std::span<float> gradients, int block) {}
  // After the last pass: the parts that the processes have of the loss are added, and their
  // gradients of the parameters that this process updates.
  virtual void Reduce(std::span<float> gradients, double& loss) = 0;
  // The sum of squares over the parameters of this process becomes that over all parameters.
  virtual double ReduceSquares(double squares) { return squares; }
  // After the update: brings what each process has updated to all, packed copies included.
  virtual void GatherWeights(Model& model) {}
};

struct TrainStepParts {
  StepReducer* reducer = nullptr;  // null: one process
  // Moments that the caller keeps, of the parameters that the process updates; empty: the step
  // allocates them.
  Moments moments;
  // The passes of a stage of a pipeline; null: the whole model in this process. The activations of
  // the step are then those of its newest pass.
  Pipeline* pipeline = nullptr;
};

class TrainStep {
 public:
  // The batch of pass `pass` (from 0) of step `step`; its views must stay valid until the next
  // call.
  using BatchSource = FunctionRef<Batch(int64_t step, int pass)>;

  // Model, activations and parts must outlive it. Of the options it takes passes, dropout, seed and
  // those of the optimizer.
  TrainStep(Model& model, Activations& activations, const TrainOptions& options,
            const TrainStepParts& parts = TrainStepParts());

  // Step `step` (from 0) with learning rate `rate`. A steady step of one process allocates nothing.
  StepResult Run(int64_t step, double rate, BatchSource batches);

  // The same in two parts. Accumulate ends at the first pass whose loss is not finite, so that the
  // batch that it read last is the one to blame.
  double Accumulate(int64_t step, BatchSource batches);
  StepResult Update(int64_t step, double rate, double loss);

  Optimizer& optimizer() { return optimizer_; }

 private:
  DropoutOptions PassDropout(int64_t step, int pass, const Batch& batch) const;

  Model& model_;
  Activations& activations_;
  TrainOptions options_;
  StepReducer* reducer_;
  Pipeline* pipeline_;
  BlockDone block_done_;  // of the last pass; empty: one process
  Optimizer optimizer_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_TRAIN_STEP_H_
