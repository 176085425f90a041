// Weights and moments of a pipeline between its stages and the whole model: checkpoints do not know
// about stages.
#ifndef DENSEFORMER_TRAIN_STAGE_STATE_H_
#define DENSEFORMER_TRAIN_STAGE_STATE_H_

#include <optional>
#include <span>
#include <vector>

#include "dist/communicator.h"
#include "model/model.h"
#include "train/data_parallel.h"

namespace denseformer {

// A whole model with its moments on the rank that reads and writes checkpoints, for as long as that
// takes; nothing on the others.
struct WholeState {
  WholeState(const ModelConfig& config, bool here);
  std::span<float> weights() const { return model ? model->weights() : std::span<float>(); }

  std::optional<Model> model;
  WholeMoments moments;
};

class StageState {
 public:
  // Rank s of `stages` holds plan[s]. The communicator must outlive it.
  StageState(Communicator& stages, const ModelConfig& config, const std::vector<Stage>& plan);

  // `mine` has the layout of this stage's table, `whole` that of the model's; it is empty on all
  // ranks but the first. A parameter of several stages comes from the first that has it.
  void Gather(std::span<const float> mine, std::span<float> whole);
  void Scatter(std::span<const float> whole, std::span<float> mine);

 private:
  Communicator& stages_;
  ParameterTable whole_;
  std::vector<ParameterTable> tables_;  // of the stages
};

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_STAGE_STATE_H_
