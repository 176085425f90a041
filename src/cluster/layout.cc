#include "cluster/layout.h"

#include <algorithm>

#include "base/error.h"
#include "train/data_parallel.h"
#include "train/pipeline_schedule.h"

namespace denseformer {
namespace {

// Whether stage s and s + 1 of any copy are on different hosts.
bool CutIsRemote(const ClusterSpec& spec, const LayoutShape& shape, int s) {
  for (int copy = 0; copy < shape.data_parallel; ++copy) {
    const int rank = copy * shape.pipeline + s;
    if (rank / spec.ranks_per_host != (rank + 1) / spec.ranks_per_host) return true;
  }
  return false;
}

// The link between ranks that all talk at once: with other hosts, a share of their host's.
LinkSpeed CrowdedLink(const ClusterSpec& spec) {
  if (spec.hosts == 1) return spec.local;
  return {spec.network.bandwidth / spec.ranks_per_host, spec.network.latency};
}

LayoutCut PlanTraffic(const ClusterJob& job, const Cut& cut, int64_t tokens) {
  const int64_t width = job.config.n_embd;
  LayoutCut traffic;
  traffic.block = cut.block;
  traffic.tensors = job.all_sources ? cut.all_sources : cut.tensors();
  if (job.all_sources) {
    const int64_t history = static_cast<int64_t>(SizeOf(job.compute));
    traffic.forward = tokens * width * (4 + history * cut.all_sources);
    traffic.backward = tokens * width * 4 * (1 + cut.all_sources);
  } else {
    traffic.forward = tokens * cut.bytes_per_token(width, job.compute);
    traffic.backward = tokens * cut.backward_bytes_per_token(width);
  }
  return traffic;
}

void CheckShape(const ClusterJob& job, const ClusterSpec& spec, const LayoutShape& shape) {
  RequireSplittable(job.config);
  if (shape.data_parallel * shape.pipeline != spec.ranks()) {
    Throw(ErrorCode::kUsage, "cluster: {} copies of {} stages are {} ranks, but there are {}",
          shape.data_parallel, shape.pipeline, shape.data_parallel * shape.pipeline, spec.ranks());
  }
  if (job.batch_size % (shape.data_parallel * shape.micro_batch) != 0) {
    Throw(ErrorCode::kUsage,
          "cluster: a batch of {} sequences does not divide into micro-batches of {} on {} copies",
          job.batch_size, shape.micro_batch, shape.data_parallel);
  }
}

// What comes after the passes.
void PlanUpdate(const ClusterJob& job, const ClusterSpec& spec, const DepthPattern& pattern,
                const std::vector<Stage>& stages, Layout& layout) {
  const int copies = layout.shape.data_parallel;
  const LinkSpeed link = CrowdedLink(spec);
  if (stages.size() > 1) {
    const int64_t embedding = int64_t{job.config.vocab_size} * job.config.n_embd * 4;
    const int64_t alphas = pattern.weight_count() * 4 * static_cast<int64_t>(stages.size() - 1);
    layout.shared = 2 * link.latency + link.Seconds(embedding + alphas);
  }
  for (size_t s = 0; s < stages.size(); ++s) {
    const ParameterTable table(job.config, pattern, stages[s]);
    layout.update =
        std::max(layout.update, job.costs.update * static_cast<double>(table.buffer_size()) /
                                    copies / spec.cores_per_rank());
    if (copies == 1) continue;
    const StepTraffic sent = BusiestTraffic(table, job.compute, copies);
    layout.reduced_bytes = std::max(layout.reduced_bytes, sent.total());
    // Buckets of all blocks but the first travel while the last backward pass goes on.
    const double blocks = stages[s].blocks.last - stages[s].blocks.first + 1;
    const double hidden = layout.stages[s].seconds.backward * (blocks - 1) / blocks;
    const double latency = link.latency * (copies - 1);
    const double gradients = link.Seconds(sent.gradients) + latency;
    layout.gradients = std::max(layout.gradients, std::max(0.0, gradients - hidden));
    layout.weights = std::max(layout.weights, link.Seconds(sent.weights) + latency);
  }
}

}  // namespace

int64_t Layout::memory() const {
  int64_t most = 0;
  for (const LayoutStage& stage : stages) most = std::max(most, stage.memory.total());
  return most;
}

int64_t Layout::cut_bytes() const {
  int64_t most = 0;
  for (const LayoutCut& cut : cuts) most = std::max(most, cut.forward + cut.backward);
  return most * micro_batches;
}

int64_t Layout::sent_bytes() const {
  int64_t most = 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    const int64_t on = s < cuts.size() ? cuts[s].forward : 0;
    const int64_t back = s > 0 ? cuts[s - 1].backward : 0;
    most = std::max(most, on + back);
  }
  return most * micro_batches + reduced_bytes;
}

Layout PlanLayout(const ClusterJob& job, const ClusterSpec& spec, const LayoutShape& shape) {
  CheckShape(job, spec, shape);
  const DepthPattern pattern = DepthPattern::Parse(job.config.dwa, job.config.n_layer);
  const std::vector<Stage> stages =
      PlanStages(pattern, BalancedCuts(job.costs, pattern, shape.pipeline, job.recompute));
  Layout layout;
  layout.shape = shape;
  layout.micro_batches =
      static_cast<int>(job.batch_size / (shape.data_parallel * shape.micro_batch));
  const int64_t tokens = shape.micro_batch * job.length;
  std::vector<PassSeconds> seconds;
  std::vector<CutSeconds> transfers;
  for (const Stage& stage : stages) {
    const StageCost cost = CostOfStage(job.costs, pattern, stage, job.recompute);
    seconds.push_back(
        {cost.forward * static_cast<double>(tokens), cost.backward * static_cast<double>(tokens)});
    layout.stages.push_back(
        {stage.blocks,
         StageMemory(job.config, job.compute, shape.micro_batch, job.length, job.recompute,
                     {&stage, PipelineSlots(stage.index, stage.count, layout.micro_batches),
                      shape.data_parallel}),
         seconds.back()});
    if (stage.last()) continue;
    layout.cuts.push_back(PlanTraffic(job, stage.out, tokens));
    const LinkSpeed link = CutIsRemote(spec, shape, stage.index) ? spec.network : spec.local;
    transfers.push_back({link.Seconds(layout.cuts.back().forward),
                         link.Seconds(layout.cuts.back().backward), link.latency});
  }
  const int together = std::min(shape.pipeline, spec.ranks_per_host);
  layout.timeline = SimulatePipeline(seconds, transfers, layout.micro_batches,
                                     {together, spec.cores_per_rank() * together});
  PlanUpdate(job, spec, pattern, stages, layout);
  return layout;
}

std::vector<Layout> PlanLayouts(const ClusterJob& job, const ClusterSpec& spec,
                                const LayoutShape& wanted) {
  std::vector<Layout> layouts;
  for (int stages = 1; stages <= std::min(spec.ranks(), job.config.n_layer); ++stages) {
    LayoutShape shape = {spec.ranks() / stages, stages, 1};
    if (spec.ranks() % stages != 0) continue;
    if (wanted.pipeline > 0 && stages != wanted.pipeline) continue;
    if (wanted.data_parallel > 0 && shape.data_parallel != wanted.data_parallel) continue;
    for (; shape.micro_batch * shape.data_parallel <= job.batch_size; shape.micro_batch *= 2) {
      if (job.batch_size % (shape.micro_batch * shape.data_parallel) != 0) continue;
      if (wanted.micro_batch > 0 && shape.micro_batch != wanted.micro_batch) continue;
      layouts.push_back(PlanLayout(job, spec, shape));
    }
  }
  if (layouts.empty()) {
    Throw(
        ErrorCode::kUsage,
        "cluster: no layout of {} ranks with a batch of {} sequences and {} blocks; the number of "
        "copies must divide the batch, and stages x copies the ranks",
        spec.ranks(), job.batch_size, job.config.n_layer);
  }
  std::stable_sort(layouts.begin(), layouts.end(), [&](const Layout& a, const Layout& b) {
    return std::pair(!a.fits(spec), a.step()) < std::pair(!b.fits(spec), b.step());
  });
  return layouts;
}

}  // namespace denseformer
