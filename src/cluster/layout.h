// What a training step takes on a cluster, for a layout of N data parallel copies of a pipeline of
// S stages: memory per rank, bytes per link, time. Rank n S + s is stage s of copy n, and hosts
// take consecutive ranks. Nothing of the model's size is allocated.
//
// Bytes are exact: what the byte counters of the ranks count in a step (dist/communicator.h). The
// time of a step is
//   passes     simulated (simulate.h): passes of the stages by measured costs, transfers while they
//              compute
//   shared     gradients that several stages have: the embedding, the weights of the averages
//   gradients  reduce-scatter between the copies, less what the last backward pass hides
//   update     of a rank's shard
//   weights    all-gather between the copies
// Ranks of a host that talk to other hosts at the same time share its bandwidth; where more of them
// compute than it has cores for, they share these.
#ifndef DENSEFORMER_CLUSTER_LAYOUT_H_
#define DENSEFORMER_CLUSTER_LAYOUT_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cluster/simulate.h"
#include "denseformer/config.h"
#include "model/stage.h"
#include "model/summary.h"
#include "train/pass_costs.h"

namespace denseformer {

// Bytes per second each way, and seconds until the first byte arrives.
struct LinkSpeed {
  double bandwidth = 0, latency = 0;
  double Seconds(int64_t bytes) const { return static_cast<double>(bytes) / bandwidth; }
};

struct ClusterSpec {
  int hosts = 1, ranks_per_host = 1;
  LinkSpeed network;              // of a host
  LinkSpeed local = {5e9, 1e-6};  // between ranks of a host
  int64_t memory = 0;             // of a rank, in bytes; 0: not limited
  int ranks_at_once = 0;          // of a host that compute at full speed; 0: all
  int ranks() const { return hosts * ranks_per_host; }
  // The cores of a host per rank, in units of those that a rank uses.
  double cores_per_rank() const {
    return ranks_at_once == 0 ? 1
                              : std::min(1.0, static_cast<double>(ranks_at_once) / ranks_per_host);
  }
};

struct ClusterJob {
  ModelConfig config;
  DType compute = DType::kF32;
  int64_t batch_size = 0;  // sequences of a step
  int64_t length = 0;      // tokens of a sequence
  bool recompute = false;
  bool all_sources = false;  // every output that is still needed crosses a cut, not the plan's
  PassCosts costs;
};

struct LayoutShape {
  int data_parallel = 1, pipeline = 1;
  int64_t micro_batch = 1;  // sequences of a pass of one rank
};

struct LayoutStage {
  BlockRange blocks;
  MemoryUse memory;
  PassSeconds seconds;
};

struct LayoutCut {
  int block = 0;
  int tensors = 0;                    // besides the stream
  int64_t forward = 0, backward = 0;  // bytes per micro-batch
};

struct Layout {
  LayoutShape shape;
  int micro_batches = 0;
  std::vector<LayoutStage> stages;
  std::vector<LayoutCut> cuts;
  Timeline timeline;
  double shared = 0, gradients = 0, update = 0, weights = 0;  // seconds, after the passes
  int64_t reduced_bytes = 0;  // that the busiest rank sends to the other copies in a step

  double step() const { return timeline.end + shared + gradients + update + weights; }
  int64_t memory() const;     // of the fullest rank
  int64_t cut_bytes() const;  // of a step, through the busiest cut, both directions
  int64_t sent_bytes()
      const;  // of a step, at most, by the busiest rank, to other stages and copies
  bool fits(const ClusterSpec& spec) const { return spec.memory == 0 || memory() <= spec.memory; }
};

// Throws kUsage where the shape does not fit the ranks, the batch or the blocks, kUnsupported where
// the averages cannot be split.
Layout PlanLayout(const ClusterJob& job, const ClusterSpec& spec, const LayoutShape& shape);

// Every layout of all ranks with micro-batches of 1, 2, 4, ... sequences, those that fit into
// memory first, then by the time of a step. `wanted`: fields above 0 are given.
std::vector<Layout> PlanLayouts(const ClusterJob& job, const ClusterSpec& spec,
                                const LayoutShape& wanted);

}  // namespace denseformer

#endif  // DENSEFORMER_CLUSTER_LAYOUT_H_
