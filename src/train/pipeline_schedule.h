// The order in which a stage of a pipeline works on the micro-batches of a step (1F1B): stage s of
// S runs S - 1 - s forward passes ahead, then one forward and one backward pass in turn, then the
// backward passes that are left. So at most S - s micro-batches are under way on it, whatever their
// number, and backward passes come in the order of the micro-batches.
#ifndef DENSEFORMER_TRAIN_PIPELINE_SCHEDULE_H_
#define DENSEFORMER_TRAIN_PIPELINE_SCHEDULE_H_

#include <algorithm>
#include <vector>

namespace denseformer {

struct PipelineAction {
  bool forward = true;
  int micro_batch = 0;
  bool operator==(const PipelineAction&) const = default;
};

inline std::vector<PipelineAction> PipelineActions(int stage, int stages, int micro_batches) {
  std::vector<PipelineAction> actions;
  const int ahead = std::min(stages - 1 - stage, micro_batches);
  for (int m = 0; m < ahead; ++m) actions.push_back({true, m});
  for (int m = 0; m < micro_batches; ++m) {
    if (m + ahead < micro_batches) actions.push_back({true, m + ahead});
    actions.push_back({false, m});
  }
  return actions;
}

// Micro-batches whose activations a stage keeps at a time.
inline int PipelineSlots(int stage, int stages, int micro_batches) {
  return std::min(stages - stage, micro_batches);
}

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_PIPELINE_SCHEDULE_H_
