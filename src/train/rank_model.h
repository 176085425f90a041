// What one rank of a training run computes with: the model of its stage, its activations, the step,
// and the exchange with the other ranks (rank_grid.h).
#ifndef DENSEFORMER_TRAIN_RANK_MODEL_H_
#define DENSEFORMER_TRAIN_RANK_MODEL_H_

#include <memory>
#include <string>

#include "base/function_ref.h"
#include "data/batches.h"
#include "io/run_directory.h"
#include "model/activations.h"
#include "model/model.h"
#include "train/data_parallel.h"
#include "train/options.h"
#include "train/pipeline.h"
#include "train/rank_grid.h"
#include "train/train_step.h"

namespace denseformer {

class RankModel {
 public:
  // Options and grid must outlive it. The weights are not initialized.
  RankModel(const TrainOptions& options, const RankGrid& grid);

  Model& model() { return model_; }
  Activations& activations() { return activations_; }
  TrainStep& step() { return step_; }
  Pipeline* pipeline() { return pipeline_.get(); }                       // null: the whole model
  const DataParallel* data_parallel() const { return parallel_.get(); }  // null: one copy
  // The sequences of each pass that this rank works on.
  const SampleRange& share() const { return share_; }

  // Logs how the ranks share the work, and what recomputation saves.
  void LogSetup() const;

  // All ranks call the following together.

  // Initialized weights become those of rank 0.
  void SendWeights();
  // Fills weights and moments of all ranks from a checkpoint, which rank 0 reads. Returns its state
  // on all ranks.
  TrainerState Load(const std::string& checkpoint);
  // Calls save() on rank 0 with the weights and moments of the whole model.
  void Save(FunctionRef<void(const Model&, const Moments&)> save);
  // After a step whose loss or gradient was not finite: the first such tensor on the first rank
  // that has one; rank 0's answer where only the sum over the ranks is not finite.
  std::string FirstBadTensor(const Batch& batch, const StepResult& result);

 private:
  const TrainOptions& options_;
  const RankGrid& grid_;
  SampleRange share_;
  Model model_;
  std::unique_ptr<DataParallel> parallel_;
  std::unique_ptr<Pipeline> pipeline_;
  std::unique_ptr<Activations> whole_activations_;  // without a pipeline
  Activations& activations_;
  std::unique_ptr<StepReducer> reducer_;  // of a pipeline
  TrainStep step_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_RANK_MODEL_H_
