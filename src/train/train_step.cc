#include "train/train_step.h"

#include <cmath>
#include <limits>

namespace denseformer {

TrainStep::TrainStep(Model& model, Activations& activations, const TrainOptions& options,
                     const TrainStepParts& parts)
    : model_(model),
      activations_(activations),
      options_(options),
      reducer_(parts.reducer),
      pipeline_(parts.pipeline),
      optimizer_(model, options, parts.moments,
                 parts.reducer != nullptr ? parts.reducer->owned() : std::span<const Range>()) {
  if (reducer_ != nullptr) {
    block_done_ = [this](int block) { reducer_->BlockDone(model_.gradients(), block); };
  }
}

StepResult TrainStep::Run(int64_t step, double rate, BatchSource batches) {
  return Update(step, rate, Accumulate(step, batches));
}

DropoutOptions TrainStep::PassDropout(int64_t step, int pass, const Batch& batch) const {
  DropoutOptions dropout = {static_cast<float>(options_.dropout),
                            static_cast<uint64_t>(options_.seed),
                            static_cast<uint64_t>(step * options_.accumulate + pass)};
  dropout.StartAt(batch.first_sequence, batch.length, model_.config());
  return dropout;
}

double TrainStep::Accumulate(int64_t step, BatchSource batches) {
  const int passes = options_.accumulate;
  if (pipeline_ != nullptr) {
    const auto pass_of = [&](int pass) -> PipelinePass {
      const Batch batch = batches(step, pass);
      return {batch, PassDropout(step, pass, batch), 1.0f / static_cast<float>(passes)};
    };
    return pipeline_->ForwardBackward(passes, pass_of, block_done_);
  }
  double loss = 0;
  for (int pass = 0; pass < passes; ++pass) {
    const Batch batch = batches(step, pass);
    loss += ForwardBackward(model_, batch, PassDropout(step, pass, batch),
                            1.0f / static_cast<float>(passes),
                            pass == 0 ? Gradients::kReplace : Gradients::kAdd, activations_,
                            pass + 1 == passes ? block_done_ : BlockDone()) /
            passes;
    if (!std::isfinite(loss)) break;
  }
  return loss;
}

StepResult TrainStep::Update(int64_t step, double rate, double loss) {
  StepResult result;
  result.loss = result.own_loss = loss;
  // The squares that the backward pass collected are those of this process's own gradients.
  double matrix_squares = activations_.matrix_squares;
  if (reducer_ != nullptr) {
    reducer_->Reduce(model_.gradients(), result.loss);
    matrix_squares = std::numeric_limits<double>::quiet_NaN();
  }
  double squares = optimizer_.SquaredGradientNorm(step, matrix_squares);
  if (reducer_ != nullptr) squares = reducer_->ReduceSquares(squares);
  result.norm = std::sqrt(squares);
  result.updated = std::isfinite(result.loss) && std::isfinite(result.norm);
  if (result.updated) {
    const bool clips = options_.clip > 0 && result.norm > options_.clip;
    optimizer_.Update(step, rate, clips ? options_.clip / (result.norm + 1e-6) : 1.0);
    if (reducer_ != nullptr) reducer_->GatherWeights(model_);
  }
  return result;
}

}  // namespace denseformer
