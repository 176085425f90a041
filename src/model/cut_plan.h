// What has to cross a cut between two blocks, where a pipeline splits the model into stages.
//
// A stage holds consecutive blocks and the modules after them; X_0 belongs to the first. Besides
// the stream Y_c that the next block reads, modules after the cut read outputs from before it. A
// static average is linear, so for each pair (source X_j before the cut, module i after it) either
// X_j crosses the cut, or the partial sum of module i with alpha_ij X_j in it. The smallest choice
// is a minimum vertex cover of the bipartite graph of these pairs, as large as a maximum matching
// (Koenig), and so the rank that the block of weights across the cut has for almost all weights:
// nothing linear needs fewer tensors.
//
// A stage can only pass on what it has: a source that came in a partial sum stays in it. Among
// smallest covers the one with the most partial sums is taken, as their number falls from cut to
// cut. No cut ever carries more than with all sources, or with a sum for each later module.
//
// The backward pass mirrors it: dY_i comes back for each partial sum, dX_j for each source.
#ifndef DENSEFORMER_MODEL_CUT_PLAN_H_
#define DENSEFORMER_MODEL_CUT_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "denseformer/depth_pattern.h"
#include "tensor/dtype.h"

namespace denseformer {

struct PartialSum {
  int module = 0;            // of the average after block `module`
  std::vector<int> sources;  // that are in the sum, ascending
};

// What crosses the cut after block `block`, besides the stream.
struct Cut {
  int block = 0;
  // X_j themselves, ascending. Where there is no module after `block` the stream is X_block, which
  // is then not among them.
  std::vector<int> sources;
  std::vector<PartialSum> sums;  // ascending by module
  // What the two simple ways would send: every source that a later module reads; a sum for each
  // later module that reads a source from before the cut.
  int all_sources = 0, all_sums = 0;

  int tensors() const { return static_cast<int>(sources.size() + sums.size()); }
  // Of the forward pass, the stream included: stream and sums are fp32, sources of type `history`.
  int64_t bytes_per_token(int64_t width, DType history) const;
  // Of the backward pass: all gradients are fp32.
  int64_t backward_bytes_per_token(int64_t width) const { return width * 4 * (1 + tensors()); }
};

// `cuts`: the last block of each stage but the last one, ascending, each from 1 to d - 1.
std::vector<Cut> PlanCuts(const DepthPattern& pattern, const std::vector<int>& cuts);

// The cuts of `stages` stages with numbers of blocks that differ by at most one. Throws kUsage
// where there are fewer blocks than stages.
std::vector<int> EvenCuts(int depth, int stages);

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_CUT_PLAN_H_
