#include "train/rank_model.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/log.h"
#include "train/diagnosis.h"
#include "train/pipeline_reducer.h"
#include "train/plan.h"
#include "train/stage_state.h"
#include "train/train_state.h"

namespace denseformer {
namespace {

std::unique_ptr<DataParallel> MakeParallel(const RankGrid& grid, Model& model) {
  if (grid.copies().size() == 1) return nullptr;
  auto parallel = std::make_unique<DataParallel>(grid.copies(), model);
  parallel->ReleaseUntilFirstStep();
  return parallel;
}

std::unique_ptr<Pipeline> MakePipeline(const RankGrid& grid, const Model& model,
                                       const TrainOptions& options, int64_t sequences) {
  if (grid.stages() == nullptr) return nullptr;
  return std::make_unique<Pipeline>(model, *grid.stages(), options.accumulate, sequences,
                                    options.model.seq_len, options.recompute);
}

std::unique_ptr<StepReducer> MakeReducer(Pipeline* pipeline, DataParallel* parallel) {
  return pipeline != nullptr ? std::make_unique<PipelineReducer>(*pipeline, parallel) : nullptr;
}

}  // namespace

RankModel::RankModel(const TrainOptions& options, const RankGrid& grid)
    : options_(options),
      grid_(grid),
      share_(PassShare(options.pass_sequences(), grid.copies())),
      model_(options.model, options.compute(), ModelUse::kTraining, &grid.stage()),
      parallel_(MakeParallel(grid, model_)),
      pipeline_(MakePipeline(grid, model_, options, share_.count)),
      whole_activations_(
          pipeline_ ? nullptr
                    : std::make_unique<Activations>(model_, share_.count, options.model.seq_len,
                                                    ModelUse::kTraining, options.recompute)),
      activations_(pipeline_ ? pipeline_->newest() : *whole_activations_),
      reducer_(MakeReducer(pipeline_.get(), parallel_.get())),
      step_(model_, activations_, options,
            {reducer_ ? reducer_.get() : parallel_.get(), {}, pipeline_.get()}) {}

void RankModel::LogSetup() const {
  if (options_.recompute) {
    LogInfo("recompute: {}",
            DescribeRecompute(EffectOfRecompute(options_.model, options_.compute(), share_.count,
                                                options_.model.seq_len)));
  }
  const int ranks = grid_.world().size();
  const size_t stages = grid_.plan().size();
  if (pipeline_) {
    LogInfo("{} ranks: {} copies of {} stages; blocks {}", ranks, grid_.copies().size(), stages,
            grid_.DescribeBlocks());
    if (options_.accumulate < static_cast<int>(stages)) {
      LogWarning(
          "{} passes per step (train.accumulate) keep {} stages waiting for each other; give "
          "several times as many passes",
          options_.accumulate, stages);
    }
  } else if (parallel_) {
    LogInfo("{} ranks; this one has {} of the {} sequences of a pass and 1/{} of the moments",
            ranks, share_.count, options_.pass_sequences(), ranks);
  }
}

void RankModel::SendWeights() {
  if (pipeline_) pipeline_->SendEmbedding(model_);
  if (parallel_) parallel_->SendWeights();
}

TrainerState RankModel::Load(const std::string& checkpoint) {
  TrainerState stored;
  const bool first = grid_.world().first(), first_copy = grid_.copies().first();
  WholeMoments gathered(parallel_ && first_copy ? model_.weights().size() : 0);
  const Moments mine = parallel_ ? gathered.moments() : step_.optimizer().moments();
  if (!pipeline_) {
    if (first) stored = LoadCheckpoint(checkpoint, model_, mine);
  } else if (first_copy) {
    StageState state(*grid_.stages(), options_.model, grid_.plan());
    WholeState whole(options_.model, first);
    if (first) stored = LoadCheckpoint(checkpoint, *whole.model, whole.moments.moments());
    state.Scatter(whole.weights(), model_.weights());
    state.Scatter(whole.moments.moments().first, mine.first);
    state.Scatter(whole.moments.moments().second, mine.second);
    model_.WeightsChanged();
  }
  if (parallel_) {
    parallel_->SendWeights();
    parallel_->ScatterMoments(mine, step_.optimizer().moments());
  }
  return BroadcastState(grid_.world(), stored);
}

void RankModel::Save(FunctionRef<void(const Model&, const Moments&)> save) {
  const bool first = grid_.world().first(), first_copy = grid_.copies().first();
  WholeMoments gathered(parallel_ && first_copy ? model_.weights().size() : 0);
  if (parallel_) parallel_->GatherMoments(step_.optimizer().moments(), gathered.moments());
  const Moments mine = parallel_ ? gathered.moments() : step_.optimizer().moments();
  // Weights and moments of this rank's stage are whole on the ranks of the first copy.
  const auto save_stages = [&] {
    if (!first_copy) return;
    if (!pipeline_) return save(model_, mine);
    StageState state(*grid_.stages(), options_.model, grid_.plan());
    WholeState whole(options_.model, first);
    state.Gather(model_.weights(), whole.weights());
    state.Gather(mine.first, whole.moments.moments().first);
    state.Gather(mine.second, whole.moments.moments().second);
    if (first) save(*whole.model, whole.moments.moments());
  };
  if (parallel_) {
    parallel_->WithWholeWeights(save_stages);
  } else {
    save_stages();
  }
}

std::string RankModel::FirstBadTensor(const Batch& batch, const StepResult& result) {
  const std::string bad = pipeline_ ? FirstBadParameter(model_)
                                    : denseformer::FirstBadTensor(model_, batch, activations_);
  const bool fine = pipeline_ ? bad == kNoBadTensor : std::isfinite(result.own_loss);
  const std::vector<uint8_t> all = Exchange(grid_.world(), static_cast<uint8_t>(fine));
  const auto culprit = std::find(all.begin(), all.end(), 0);
  return BroadcastText(grid_.world(), bad,
                       culprit == all.end() ? 0 : static_cast<int>(culprit - all.begin()));
}

}  // namespace denseformer
