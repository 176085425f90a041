#include "cluster/simulate.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace denseformer {
namespace {

// One direction of a link.
class Link {
 public:
  Link(double seconds, double latency, int micro_batches)
      : seconds_(seconds), latency_(latency), arrivals_(micro_batches, NAN) {}

  void Send(int micro_batch, double at) {
    free_ = std::max(free_, at) + seconds_;
    arrivals_[micro_batch] = free_ + latency_;
  }
  // NaN: not sent yet.
  double arrival(int micro_batch) const { return arrivals_[micro_batch]; }

 private:
  double seconds_, latency_, free_ = 0;
  std::vector<double> arrivals_;
};

}  // namespace

double Timeline::bubble() const {
  double busy = 0;
  for (const Pass& pass : passes) busy += pass.end - pass.begin;
  return end > 0 ? 1 - busy / (end * stages) : 0;
}

Timeline SimulatePipeline(const std::vector<PassSeconds>& stages,
                          const std::vector<CutSeconds>& cuts, int micro_batches) {
  const int count = static_cast<int>(stages.size());
  DF_CHECK(count >= 1 && static_cast<int>(cuts.size()) == count - 1 && micro_batches >= 1);
  std::vector<Link> down, up;  // forward and backward through each cut
  for (const CutSeconds& cut : cuts) {
    down.emplace_back(cut.forward, cut.latency, micro_batches);
    up.emplace_back(cut.backward, cut.latency, micro_batches);
  }
  struct Worker {
    std::vector<PipelineAction> actions;
    std::vector<Timeline::Pass> done;
    double free = 0;
  };
  std::vector<Worker> workers(stages.size());
  for (int s = 0; s < count; ++s) workers[s].actions = PipelineActions(s, count, micro_batches);

  // Runs the next pass of stage s; false where what it needs has not been sent.
  const auto run = [&](int s) {
    Worker& worker = workers[s];
    if (worker.done.size() == worker.actions.size()) return false;
    const PipelineAction& action = worker.actions[worker.done.size()];
    double ready = 0;
    if (action.forward && s > 0) ready = down[s - 1].arrival(action.micro_batch);
    if (!action.forward && s + 1 < count) ready = up[s].arrival(action.micro_batch);
    if (std::isnan(ready)) return false;
    const double begin = std::max(worker.free, ready);
    worker.free = begin + (action.forward ? stages[s].forward : stages[s].backward);
    worker.done.push_back({s, action, begin, worker.free});
    if (action.forward && s + 1 < count) down[s].Send(action.micro_batch, worker.free);
    if (!action.forward && s > 0) up[s - 1].Send(action.micro_batch, worker.free);
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (int s = 0; s < count; ++s) {
      while (run(s)) moved = true;
    }
  }

  Timeline timeline;
  timeline.stages = count;
  for (const Worker& worker : workers) {
    DF_CHECK(worker.done.size() == worker.actions.size());
    timeline.passes.insert(timeline.passes.end(), worker.done.begin(), worker.done.end());
    timeline.end = std::max(timeline.end, worker.free);
  }
  return timeline;
}

}  // namespace denseformer
