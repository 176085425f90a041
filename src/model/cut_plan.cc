#include "model/cut_plan.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace denseformer {
namespace {

// A tensor that the stage before the cut has: X_j, or the partial sum of a module.
struct Item {
  bool sum = false;
  int number = 0;             // j, or the module
  std::vector<int> contains;  // sources: j, or those of the sum
  std::vector<int> sinks;     // modules after the cut that need it, as indices
};

// Maximum matching of items and sinks by augmenting paths, and the cover that follows from it.
class Cover {
 public:
  Cover(const std::vector<Item>& items, int sinks)
      : items_(items),
        item_of_(static_cast<size_t>(sinks), -1),
        sink_of_(items.size(), -1),
        readers_(static_cast<size_t>(sinks)) {
    for (size_t i = 0; i < items.size(); ++i) {
      for (const int sink : items[i].sinks) {
        readers_[static_cast<size_t>(sink)].push_back(static_cast<int>(i));
      }
      std::vector<bool> seen(item_of_.size());
      Augment(static_cast<int>(i), seen);
    }
    // From every sink without a partner along alternating paths; what is reached there on the side
    // of the items, and what is not on the side of the sinks, covers all edges.
    reached_item_.resize(items.size());
    reached_sink_.resize(item_of_.size());
    for (size_t sink = 0; sink < item_of_.size(); ++sink) {
      if (item_of_[sink] < 0) Reach(static_cast<int>(sink));
    }
  }

  bool item(size_t i) const { return reached_item_[i]; }
  bool sink(size_t s) const { return !reached_sink_[s]; }

 private:
  bool Augment(int item, std::vector<bool>& seen) {
    for (const int sink : items_[static_cast<size_t>(item)].sinks) {
      const size_t s = static_cast<size_t>(sink);
      if (seen[s]) continue;
      seen[s] = true;
      if (item_of_[s] >= 0 && !Augment(item_of_[s], seen)) continue;
      item_of_[s] = item;
      sink_of_[static_cast<size_t>(item)] = sink;
      return true;
    }
    return false;
  }

  void Reach(int sink) {
    if (reached_sink_[static_cast<size_t>(sink)]) return;
    reached_sink_[static_cast<size_t>(sink)] = true;
    for (const int item : readers_[static_cast<size_t>(sink)]) {
      if (reached_item_[static_cast<size_t>(item)]) continue;
      reached_item_[static_cast<size_t>(item)] = true;
      // A largest matching leaves no reached item without a partner.
      Reach(sink_of_[static_cast<size_t>(item)]);
    }
  }

  const std::vector<Item>& items_;
  std::vector<int> item_of_, sink_of_;
  std::vector<std::vector<int>> readers_;  // items of a sink
  std::vector<bool> reached_item_, reached_sink_;
};

bool Contains(const std::vector<int>& sorted, int value) {
  return std::binary_search(sorted.begin(), sorted.end(), value);
}

// The tensors that the stage before the cut after block `block` has and later modules need:
// `before` (null at the first cut) brought the old ones, the stage made the others.
std::vector<Item> Items(const DepthPattern& pattern, const Cut* before, int block,
                        const std::vector<int>& modules) {
  // The sources that are already in the sum of a module.
  const auto summed = [before](int module) -> const std::vector<int>* {
    if (before == nullptr) return nullptr;
    for (const PartialSum& sum : before->sums) {
      if (sum.module == module) return &sum.sources;
    }
    return nullptr;
  };
  std::vector<Item> items;
  std::vector<int> sources;
  if (before != nullptr) {
    sources = before->sources;
    if (!pattern.has_module(before->block)) sources.push_back(before->block);
  }
  for (int j = before == nullptr ? 0 : before->block + 1; j <= block; ++j) sources.push_back(j);
  for (const int j : sources) {
    if (j == block && !pattern.has_module(block)) continue;  // the stream brings it
    Item item = {false, j, {j}, {}};
    for (size_t s = 0; s < modules.size(); ++s) {
      const std::vector<int>* sum = summed(modules[s]);
      if (!Contains(pattern.sources(modules[s]), j)) continue;
      if (sum == nullptr || !Contains(*sum, j)) item.sinks.push_back(static_cast<int>(s));
    }
    if (!item.sinks.empty()) items.push_back(std::move(item));
  }
  for (size_t s = 0; s < modules.size(); ++s) {
    if (const std::vector<int>* sum = summed(modules[s])) {
      items.push_back({true, modules[s], *sum, {static_cast<int>(s)}});
    }
  }
  return items;
}

Cut PlanCut(const DepthPattern& pattern, const Cut* before, int block) {
  Cut cut;
  cut.block = block;
  std::vector<int> modules;  // after the cut
  for (int i = block + 1; i <= pattern.depth(); ++i) {
    if (pattern.has_module(i)) modules.push_back(i);
  }
  std::set<int> needed;
  for (const int i : modules) {
    const std::vector<int>& sources = pattern.sources(i);
    cut.all_sums += sources.front() <= block;
    for (const int j : sources) {
      if (j <= block) needed.insert(j);
    }
  }
  cut.all_sources = static_cast<int>(needed.size());

  const std::vector<Item> items = Items(pattern, before, block, modules);
  const Cover cover(items, static_cast<int>(modules.size()));
  for (size_t s = 0; s < modules.size(); ++s) {
    PartialSum sum = {modules[s], {}};
    for (size_t i = 0; i < items.size(); ++i) {
      const bool edge =
          std::count(items[i].sinks.begin(), items[i].sinks.end(), static_cast<int>(s)) > 0;
      // A covered sum goes on as a sum; a source that crosses by itself is not added.
      if (!edge || (cover.item(i) && !items[i].sum)) continue;
      sum.sources.insert(sum.sources.end(), items[i].contains.begin(), items[i].contains.end());
    }
    std::sort(sum.sources.begin(), sum.sources.end());
    if (!sum.sources.empty()) cut.sums.push_back(std::move(sum));
  }
  for (size_t i = 0; i < items.size(); ++i) {
    if (cover.item(i) && !items[i].sum) cut.sources.push_back(items[i].number);
  }
  return cut;
}

}  // namespace

int64_t Cut::bytes_per_token(int64_t width, DType history) const {
  return width * (4 * (1 + static_cast<int64_t>(sums.size())) +
                  static_cast<int64_t>(SizeOf(history) * sources.size()));
}

std::vector<Cut> PlanCuts(const DepthPattern& pattern, const std::vector<int>& cuts) {
  std::vector<Cut> plan;
  for (const int block : cuts) {
    DF_CHECK(block >= 1 && block < pattern.depth() && (plan.empty() || block > plan.back().block));
    const Cut* before = plan.empty() ? nullptr : &plan.back();
    plan.push_back(PlanCut(pattern, before, block));
  }
  return plan;
}

std::vector<int> EvenCuts(int depth, int stages) {
  if (stages < 1 || stages > depth) {
    Throw(ErrorCode::kUsage, "pipeline: got {} stages, expected 1 to {}, the number of blocks",
          stages, depth);
  }
  std::vector<int> cuts;
  for (int s = 1; s < stages; ++s) cuts.push_back(depth * s / stages);
  return cuts;
}

}  // namespace denseformer
