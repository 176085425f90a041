// When the depth-weighted averages look ahead: which pass also prepares the sums of which later
// passes.
//
// A pass that reads old memory for its own sum (the leader) also adds up the same memory for
// others that come later (its followers), in fp32 partial sums ("slots"). A follower then starts
// from its partial sum and reads only what has come since. Forward the passes are the modules in
// ascending order and the memory is X_j; backward they are the sources in descending order and the
// memory is dY_i.
#ifndef DENSEFORMER_KERNELS_DWA_DWA_SCHEDULE_H_
#define DENSEFORMER_KERNELS_DWA_DWA_SCHEDULE_H_

#include <vector>

#include "denseformer/depth_pattern.h"

namespace denseformer {

struct DepthStep {
  int slot = -1;    // holds the partial sum to start from; -1: none
  int covered = 0;  // how many terms are in it: the oldest sources, or the deepest readers
  struct Follower {
    int depth;
    int slot;
  };
  std::vector<Follower> followers;  // of a leader
};

struct DepthSchedule {
  std::vector<DepthStep> steps;  // [depth + 1]
  int slots = 0;                 // partial sums alive at the same time, at most
};

struct LookAhead {
  int group;  // a leader and its followers, at most
  int slots;  // partial sums at the same time, at most
  int worth;  // a partial sum of fewer terms costs more to write and read than it saves
};

// A partial sum is written and read in fp32: 8 bytes per element, as much as 4 sources in bf16.
// Forward a leader waits for some more, because what it then covers is not read by its followers.
// Backward the lines are fetched before the write: 12 bytes, as much as 3 gradients in fp32.
inline constexpr LookAhead kForwardLookAhead = {.group = 6, .slots = 7, .worth = 7};
inline constexpr LookAhead kBackwardLookAhead = {.group = 4, .slots = 7, .worth = 4};

DepthSchedule ScheduleForward(const DepthPattern& pattern, const LookAhead& limits);
DepthSchedule ScheduleBackward(const DepthPattern& pattern, const LookAhead& limits);

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_DWA_DWA_SCHEDULE_H_
