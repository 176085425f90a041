#include "train/pipeline_reducer.h"

namespace denseformer {

std::span<const Range> PipelineReducer::owned() const {
  return copies_ != nullptr ? copies_->owned() : std::span<const Range>();
}

void PipelineReducer::BlockDone(std::span<float> gradients, int block) {
  if (copies_ != nullptr) copies_->BlockDone(gradients, block);
}

void PipelineReducer::Reduce(std::span<float> gradients, double& loss) {
  pipeline_.SumSharedGradients();
  if (copies_ != nullptr) copies_->Reduce(gradients, loss);
  // The last stage has the loss.
  Communicator& stages = pipeline_.stages();
  Broadcast(stages, std::span(&loss, 1), stages.size() - 1);
}

double PipelineReducer::ReduceSquares(double squares) {
  if (copies_ != nullptr) squares = copies_->ReduceSquares(squares);
  double sum = 0;
  for (const double part : Exchange(pipeline_.stages(), squares)) sum += part;
  return sum;
}

void PipelineReducer::GatherWeights(Model& model) {
  if (copies_ != nullptr) copies_->GatherWeights(model);
}

}  // namespace denseformer
