// When the stages of a pipeline work on which micro-batch: the order of train/pipeline_schedule.h,
// played with given times. A stage works on one pass at a time, in its order, and starts one as
// soon as what it needs has arrived. Stages of a host that compute at the same time share its cores
// evenly. A link carries one message after the other in each direction while the stages compute.
#ifndef DENSEFORMER_CLUSTER_SIMULATE_H_
#define DENSEFORMER_CLUSTER_SIMULATE_H_

#include <vector>

#include "train/pipeline_schedule.h"

namespace denseformer {

// Seconds per micro-batch, forward and backward.
struct PassSeconds {
  double forward = 0, backward = 0;
};

// A transfer occupies the link for `forward` or `backward` seconds and arrives `latency` later.
struct CutSeconds {
  double forward = 0, backward = 0, latency = 0;
};

// Of the hosts of the stages: each has `stages` consecutive ones, of which `cores` compute at full
// speed at the same time.
struct HostCores {
  int stages = 1;
  double cores = 1;
};

struct Timeline {
  struct Pass {
    int stage = 0;
    PipelineAction action;
    double begin = 0, end = 0;
  };
  std::vector<Pass> passes;  // of each stage in its order, stage by stage
  int stages = 0;
  double end = 0;
  // The share of all stages' time in which they wait.
  double bubble() const;
};

// cuts.size() is stages.size() - 1.
Timeline SimulatePipeline(const std::vector<PassSeconds>& stages,
                          const std::vector<CutSeconds>& cuts, int micro_batches,
                          const HostCores& hosts = {});

}  // namespace denseformer

#endif  // DENSEFORMER_CLUSTER_SIMULATE_H_
