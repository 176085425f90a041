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

// A stage, and the pass that it works on.
struct Worker {
  std::vector<PipelineAction> actions;
  std::vector<Timeline::Pass> done;
  bool busy = false;
  double begin = 0;  // of the pass
  double left = 0;   // of it, in seconds at full speed
};

class Simulation {
 public:
  Simulation(const std::vector<PassSeconds>& stages, const std::vector<CutSeconds>& cuts,
             int micro_batches, const HostCores& hosts)
      : stages_(stages), hosts_(hosts), workers_(stages.size()) {
    const int count = static_cast<int>(stages.size());
    for (const CutSeconds& cut : cuts) {
      down_.emplace_back(cut.forward, cut.latency, micro_batches);
      up_.emplace_back(cut.backward, cut.latency, micro_batches);
    }
    for (int s = 0; s < count; ++s) workers_[s].actions = PipelineActions(s, count, micro_batches);
  }

  std::vector<Worker> Run() {
    for (bool more = true; more;) {
      StartReady();
      more = Advance();
    }
    return std::move(workers_);
  }

 private:
  const PipelineAction& Next(const Worker& worker) const {
    return worker.actions[worker.done.size()];
  }

  // When the next pass of stage s can start; NaN: what it needs has not been sent, or it is over.
  double Ready(int s) const {
    const Worker& worker = workers_[s];
    if (worker.done.size() == worker.actions.size()) return NAN;
    const PipelineAction& action = Next(worker);
    if (action.forward) return s > 0 ? down_[s - 1].arrival(action.micro_batch) : 0;
    return s + 1 < static_cast<int>(workers_.size()) ? up_[s].arrival(action.micro_batch) : 0;
  }

  void StartReady() {
    for (int s = 0; s < static_cast<int>(workers_.size()); ++s) {
      Worker& worker = workers_[s];
      if (worker.busy || !(Ready(s) <= now_)) continue;
      worker.busy = true;
      worker.begin = now_;
      worker.left = Next(worker).forward ? stages_[s].forward : stages_[s].backward;
    }
  }

  // The speed of a busy stage of the host of stage s.
  double Speed(int s) const {
    const int first = s / hosts_.stages * hosts_.stages;
    const int last = std::min(first + hosts_.stages, static_cast<int>(workers_.size()));
    const auto busy = std::count_if(workers_.begin() + first, workers_.begin() + last,
                                    [](const Worker& worker) { return worker.busy; });
    return std::min(1.0, hosts_.cores / static_cast<double>(busy));
  }

  // To the next moment at which a pass ends or can start; false where there is none.
  bool Advance() {
    const size_t count = workers_.size();
    double next = INFINITY;
    std::vector<double> ends(count, INFINITY), speeds(count, 1);
    for (size_t s = 0; s < count; ++s) {
      const int stage = static_cast<int>(s);
      const double ready = Ready(stage);
      if (workers_[s].busy) {
        speeds[s] = Speed(stage);
        ends[s] = now_ + workers_[s].left / speeds[s];
        next = std::min(next, ends[s]);
      } else if (!std::isnan(ready)) {
        next = std::min(next, ready);
      }
    }
    if (std::isinf(next)) return false;
    const double passed = next - now_;
    now_ = next;
    for (size_t s = 0; s < count; ++s) {
      if (!workers_[s].busy) continue;
      workers_[s].left -= passed * speeds[s];
      if (ends[s] <= now_) Finish(static_cast<int>(s));
    }
    return true;
  }

  void Finish(int s) {
    Worker& worker = workers_[s];
    const PipelineAction action = Next(worker);
    worker.busy = false;
    worker.done.push_back({s, action, worker.begin, now_});
    if (action.forward && s + 1 < static_cast<int>(workers_.size())) {
      down_[s].Send(action.micro_batch, now_);
    }
    if (!action.forward && s > 0) up_[s - 1].Send(action.micro_batch, now_);
  }

  const std::vector<PassSeconds>& stages_;
  HostCores hosts_;
  std::vector<Worker> workers_;
  std::vector<Link> down_, up_;  // forward and backward through each cut
  double now_ = 0;
};

}  // namespace

double Timeline::bubble() const {
  double busy = 0;
  for (const Pass& pass : passes) busy += pass.end - pass.begin;
  return end > 0 ? 1 - busy / (end * stages) : 0;
}

Timeline SimulatePipeline(const std::vector<PassSeconds>& stages,
                          const std::vector<CutSeconds>& cuts, int micro_batches,
                          const HostCores& hosts) {
  const int count = static_cast<int>(stages.size());
  DF_CHECK(count >= 1 && static_cast<int>(cuts.size()) == count - 1 && micro_batches >= 1);
  DF_CHECK(hosts.stages >= 1 && hosts.cores > 0);
  Timeline timeline;
  timeline.stages = count;
  for (const Worker& worker : Simulation(stages, cuts, micro_batches, hosts).Run()) {
    DF_CHECK(worker.done.size() == worker.actions.size());
    timeline.passes.insert(timeline.passes.end(), worker.done.begin(), worker.done.end());
    timeline.end = std::max(timeline.end, worker.done.back().end);
  }
  return timeline;
}

}  // namespace denseformer
