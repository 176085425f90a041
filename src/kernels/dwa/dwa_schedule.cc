#include "kernels/dwa/dwa_schedule.h"

#include <algorithm>

namespace denseformer {
namespace {

// One pass: what it adds up, in the order of its sum.
struct Pass {
  int depth;
  std::vector<int> terms;
};

// How many terms of `later` are ready before the leader's own newest term, provided that the leader
// reads all of them; else 0. `ready(term)` says whether a term is.
template <class Ready>
int Shared(const Pass& leader, const Pass& later, Ready ready) {
  int count = 0;
  for (int term : later.terms) {
    if (!ready(term)) break;
    if (std::find(leader.terms.begin(), leader.terms.end(), term) == leader.terms.end()) return 0;
    ++count;
  }
  return count;
}

// `ready(term, depth)`: the term can be added up in the pass of that depth.
template <class Ready>
DepthSchedule Schedule(const std::vector<Pass>& passes, int depth, const LookAhead& limits,
                       Ready ready) {
  DepthSchedule schedule;
  schedule.steps.resize(depth + 1);
  std::vector<bool> taken(limits.slots, false);
  for (size_t p = 0; p < passes.size(); ++p) {
    DepthStep& step = schedule.steps[passes[p].depth];
    if (step.slot >= 0) {
      taken[step.slot] = false;
      continue;
    }
    for (size_t q = p + 1; q < passes.size(); ++q) {
      if (static_cast<int>(step.followers.size()) + 1 >= limits.group) break;
      DepthStep& later = schedule.steps[passes[q].depth];
      if (later.slot >= 0) continue;
      const int shared =
          Shared(passes[p], passes[q], [&](int term) { return ready(term, passes[p].depth); });
      const auto free = std::find(taken.begin(), taken.end(), false);
      if (shared < limits.worth || free == taken.end()) continue;
      *free = true;
      later.slot = static_cast<int>(free - taken.begin());
      later.covered = shared;
      step.followers.push_back({passes[q].depth, later.slot});
      schedule.slots = std::max(schedule.slots, later.slot + 1);
    }
  }
  return schedule;
}

}  // namespace

DepthSchedule ScheduleForward(const DepthPattern& pattern, const LookAhead& limits) {
  std::vector<Pass> passes;
  for (int i = 0; i <= pattern.depth(); ++i) {
    if (pattern.has_module(i)) passes.push_back({i, pattern.sources(i)});
  }
  // The newest source of a leader is left to the followers: the leader reads it in fp32, they in
  // the precision of the history.
  return Schedule(passes, pattern.depth(), limits,
                  [](int term, int depth) { return term < depth; });
}

DepthSchedule ScheduleBackward(const DepthPattern& pattern, const LookAhead& limits) {
  std::vector<Pass> passes;
  for (int j = pattern.depth(); j >= 0; --j) {
    if (pattern.readers(j).empty()) continue;
    Pass pass{j, {}};
    for (const DepthPattern::Reader& reader : pattern.readers(j))
      pass.terms.push_back(reader.depth);
    std::reverse(pass.terms.begin(), pass.terms.end());
    passes.push_back(pass);
  }
  return Schedule(passes, pattern.depth(), limits,
                  [](int term, int depth) { return term >= depth; });
}

}  // namespace denseformer
