// A stage of a pipeline: consecutive blocks that one process holds, and what crosses the cuts
// before and after them (cut_plan.h). One stage with all blocks is a model in one process.
//
// A pair (module i, source X_j) belongs to the one stage that adds alpha_ij X_j to the average, be
// it to Y_i or to a partial sum that it sends on: it also computes that part of the gradients,
// dalpha_ij and alpha_ij dY_i. So every stage has the weights of all averages, and their gradients
// are summed over the stages.
#ifndef DENSEFORMER_MODEL_STAGE_H_
#define DENSEFORMER_MODEL_STAGE_H_

#include <vector>

#include "denseformer/config.h"
#include "denseformer/depth_pattern.h"
#include "model/cut_plan.h"

namespace denseformer {

// Blocks of a stage, 1 <= first <= last <= d.
struct BlockRange {
  int first = 1, last = 1;
  bool contains(int i) const { return i >= first && i <= last; }
};

struct Stage {
  int index = 0, count = 1;
  BlockRange blocks;
  Cut in, out;  // empty on the first stage, on the last one

  bool whole() const { return count == 1; }
  bool first() const { return index == 0; }
  bool last() const { return index == count - 1; }
  // Whether X_j is made here.
  bool Makes(int j) const { return blocks.contains(j) || (j == 0 && first()); }
  // Whether X_j is here: made here, come as a source, or as the stream.
  bool Holds(const DepthPattern& pattern, int j) const;
  // Whether the pair of module i and source X_j belongs to this stage.
  bool Adds(const DepthPattern& pattern, int i, int j) const;
};

// All of a model of `depth` blocks.
Stage WholeStage(int depth);

// The stages between `cuts` (PlanCuts).
std::vector<Stage> PlanStages(const DepthPattern& pattern, const std::vector<int>& cuts);

// The partial sum of module i that crosses the cut; null where there is none.
const PartialSum* FindSum(const Cut& cut, int i);

// Throws kUnsupported where the averages of a model cannot be split into partial sums.
void RequireSplittable(const ModelConfig& config);

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_STAGE_H_
