// The gradients of a step on a grid of ranks (rank_grid.h): those of shared parameters are summed
// over the stages of a copy, then all are reduced over the copies.
#ifndef DENSEFORMER_TRAIN_PIPELINE_REDUCER_H_
#define DENSEFORMER_TRAIN_PIPELINE_REDUCER_H_

#include "train/data_parallel.h"
#include "train/pipeline.h"
#include "train/train_step.h"

namespace denseformer {

class PipelineReducer : public StepReducer {
 public:
  // Both must outlive it; `copies` is null where there is one copy.
  PipelineReducer(Pipeline& pipeline, DataParallel* copies)
      : pipeline_(pipeline), copies_(copies) {}

  std::span<const Range> owned() const override;
  void BlockDone(std::span<float> gradients, int block) override;
  void Reduce(std::span<float> gradients, double& loss) override;
  double ReduceSquares(double squares) override;
  void GatherWeights(Model& model) override;

 private:
  Pipeline& pipeline_;
  DataParallel* copies_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_PIPELINE_REDUCER_H_
