// The ranks of a training run: N copies of a pipeline of S stages. Rank n S + s of the world holds
// stage s of copy n. S = 1 is data parallel training alone.
#ifndef DENSEFORMER_TRAIN_RANK_GRID_H_
#define DENSEFORMER_TRAIN_RANK_GRID_H_

#include <memory>
#include <string>
#include <vector>

#include "dist/communicator.h"
#include "model/stage.h"
#include "train/options.h"

namespace denseformer {

struct PipelineRequest {
  int stages = 1;
  std::vector<int> cuts;  // the last block of each stage but the last; empty: by measured costs
};

// "12,24,36"; throws kUsage.
std::vector<int> ParseCuts(const std::string& text);

class RankGrid {
 public:
  // All ranks call it with the same options. Rank 0 measures where no cuts are given. Throws kUsage
  // where the stages do not divide the ranks or do not fit the blocks, kUnsupported where the model
  // cannot be split. The world must outlive it.
  RankGrid(Communicator& world, const TrainOptions& options, const PipelineRequest& request);

  Communicator& world() const { return world_; }
  // The ranks that hold the same stage as this one.
  Communicator& copies() const { return stages_ != nullptr ? *copies_ : world_; }
  // The ranks of this copy; null without a pipeline.
  Communicator* stages() const { return stages_.get(); }
  const std::vector<Stage>& plan() const { return plan_; }
  const Stage& stage() const {
    return plan_[static_cast<size_t>(stages_ != nullptr ? stages_->rank() : 0)];
  }
  // "12,24,36": as ParseCuts reads them; empty without a pipeline.
  std::string cuts() const;
  // "1 to 12, 13 to 24"
  std::string DescribeBlocks() const;

 private:
  Communicator& world_;
  std::unique_ptr<Communicator> copies_, stages_;
  std::vector<Stage> plan_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_RANK_GRID_H_
