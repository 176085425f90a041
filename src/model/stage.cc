#include "model/stage.h"

#include <algorithm>

#include "base/error.h"
#include "model/mixer_spec.h"

namespace denseformer {
namespace {

bool Contains(const std::vector<int>& sorted, int value) {
  return std::binary_search(sorted.begin(), sorted.end(), value);
}

bool SumHolds(const Cut& cut, int i, int j) {
  const PartialSum* sum = FindSum(cut, i);
  return sum != nullptr && Contains(sum->sources, j);
}

}  // namespace

bool Stage::Holds(const DepthPattern& pattern, int j) const {
  if (Makes(j) || Contains(in.sources, j)) return true;
  return !first() && j == blocks.first - 1 && !pattern.has_module(j);
}

bool Stage::Adds(const DepthPattern& pattern, int i, int j) const {
  if (!Contains(pattern.sources(i), j) || !Holds(pattern, j) || SumHolds(in, i, j)) return false;
  return blocks.contains(i) || (i > blocks.last && SumHolds(out, i, j));
}

Stage WholeStage(int depth) {
  Stage stage;
  stage.blocks = {1, depth};
  return stage;
}

std::vector<Stage> PlanStages(const DepthPattern& pattern, const std::vector<int>& cuts) {
  const std::vector<Cut> plan = PlanCuts(pattern, cuts);
  std::vector<Stage> stages(plan.size() + 1);
  for (size_t s = 0; s < stages.size(); ++s) {
    Stage& stage = stages[s];
    stage.index = static_cast<int>(s);
    stage.count = static_cast<int>(stages.size());
    if (s > 0) stage.in = plan[s - 1];
    if (s < plan.size()) stage.out = plan[s];
    stage.blocks = {s > 0 ? plan[s - 1].block + 1 : 1,
                    s < plan.size() ? plan[s].block : pattern.depth()};
  }
  return stages;
}

const PartialSum* FindSum(const Cut& cut, int i) {
  for (const PartialSum& sum : cut.sums) {
    if (sum.module == i) return &sum;
  }
  return nullptr;
}

void RequireSplittable(const ModelConfig& config) {
  if (ParseMixer(config).plain()) return;
  Throw(ErrorCode::kUnsupported,
        "pipeline: partial sums cross the cuts, which needs static weights of one stream; got "
        "mixer {} with streams {}; train it without --pipeline",
        config.mixer, config.streams);
}

}  // namespace denseformer
