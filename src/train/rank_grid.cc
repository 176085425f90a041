#include "train/rank_grid.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "dist/collectives.h"
#include "train/pass_costs.h"

namespace denseformer {
namespace {

// Groups keep their messages apart by these numbers.
enum GroupId { kCopies = 1, kStages = 2 };

void CheckCuts(const std::vector<int>& cuts, int stages, int depth) {
  bool right = static_cast<int>(cuts.size()) == stages - 1;
  for (size_t i = 0; i < cuts.size(); ++i) {
    right = right && cuts[i] >= 1 && cuts[i] < depth && (i == 0 || cuts[i] > cuts[i - 1]);
  }
  if (right) return;
  std::vector<std::string> texts;
  for (const int cut : cuts) texts.push_back(std::to_string(cut));
  Throw(ErrorCode::kUsage,
        "train: --cuts {}, expected {} ascending numbers of blocks from 1 to {}, the last block of "
        "each of {} stages but the last",
        Join(texts, ","), stages - 1, depth - 1, stages);
}

// By costs that rank 0 measures, so that all have the same.
std::vector<int> MeasuredCuts(Communicator& world, const TrainOptions& options,
                              const DepthPattern& pattern, int stages) {
  std::vector<int> cuts(static_cast<size_t>(stages) - 1);
  if (world.first()) {
    const int64_t length = options.model.seq_len;
    const int64_t sequences =
        std::clamp<int64_t>(2048 / length, 1, std::max<int64_t>(1, options.pass_sequences()));
    cuts = BalancedCuts(MeasurePassCosts(options.model, options.compute(), sequences, length),
                        pattern, stages, options.recompute);
  }
  Broadcast(world, std::span(cuts));
  return cuts;
}

}  // namespace

std::vector<int> ParseCuts(const std::string& text) {
  std::vector<int> cuts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    cuts.push_back(
        static_cast<int>(ParseInt("--cuts", text.substr(begin, end - begin), 1, 1 << 20)));
    begin = end + 1;
  }
  return cuts;
}

RankGrid::RankGrid(Communicator& world, const TrainOptions& options, const PipelineRequest& request)
    : world_(world) {
  const int depth = options.model.n_layer, stages = request.stages;
  if (stages == 1) {
    if (!request.cuts.empty()) Throw(ErrorCode::kUsage, "train: --cuts goes with --pipeline");
    plan_ = {WholeStage(depth)};
    return;
  }
  EvenCuts(depth, stages);  // throws where there are fewer blocks
  if (world.size() % stages != 0) {
    Throw(ErrorCode::kUsage,
          "train: --pipeline {} on {} ranks, expected a multiple of {} (mpirun -n {} denseformer "
          "train ...)",
          stages, world.size(), stages, std::max(1, world.size() / stages) * stages);
  }
  RequireSplittable(options.model);
  if (!request.cuts.empty()) CheckCuts(request.cuts, stages, depth);
  const int copy = world.rank() / stages, stage = world.rank() % stages;
  std::vector<int> copies, peers;
  for (int n = 0; n < world.size() / stages; ++n) copies.push_back(n * stages + stage);
  for (int s = 0; s < stages; ++s) peers.push_back(copy * stages + s);
  copies_ = MakeGroup(world, copies, kCopies);
  stages_ = MakeGroup(world, peers, kStages);
  const DepthPattern pattern = DepthPattern::Parse(options.model.dwa, depth);
  plan_ = PlanStages(
      pattern, request.cuts.empty() ? MeasuredCuts(world, options, pattern, stages) : request.cuts);
}

std::string RankGrid::cuts() const {
  std::vector<std::string> texts;
  for (size_t s = 0; s + 1 < plan_.size(); ++s) {
    texts.push_back(std::to_string(plan_[s].blocks.last));
  }
  return Join(texts, ",");
}

std::string RankGrid::DescribeBlocks() const {
  std::vector<std::string> texts;
  for (const Stage& stage : plan_) {
    texts.push_back(fmt::format("{} to {}", stage.blocks.first, stage.blocks.last));
  }
  return Join(texts, ", ");
}

}  // namespace denseformer
