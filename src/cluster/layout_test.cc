#include "cluster/layout.h"

#include <gtest/gtest.h>

#include "base/error_testing.h"
#include "dist/testing.h"
#include "model/testing.h"
#include "train/data_parallel.h"
#include "train/pipeline.h"

namespace denseformer {
namespace {

ClusterJob Job(const std::string& dwa, int blocks = 48) {
  ClusterJob job;
  job.config = ModelConfig::Preset("test");
  job.config.n_layer = blocks;
  job.config.dwa = dwa;
  job.batch_size = 32;
  job.length = job.config.seq_len;
  for (const PassCostField& row : PassCostFields()) job.costs.*row.field = 1e-6;
  job.costs.source_forward = job.costs.source_backward = 0;
  job.costs.input_forward = job.costs.input_backward = job.costs.head = 0;
  return job;
}

ClusterSpec Hosts(int hosts) {
  ClusterSpec spec;
  spec.hosts = hosts;
  spec.network = {1.25e9, 30e-6};
  return spec;
}

std::vector<int> Tensors(const Layout& layout) {
  std::vector<int> tensors;
  for (const LayoutCut& cut : layout.cuts) tensors.push_back(cut.tensors);
  return tensors;
}

TEST(LayoutTest, TrafficOfFortyEightBlocksInFourStages) {
  const Layout sparse = PlanLayout(Job("4x5"), Hosts(4), {1, 4, 4});
  EXPECT_EQ(Tensors(sparse), (std::vector<int>{7, 5, 2}));
  const Layout dense = PlanLayout(Job("1x1"), Hosts(4), {1, 4, 4});
  EXPECT_EQ(Tensors(dense), (std::vector<int>{13, 24, 12}));
  const ClusterJob job = Job("1x1");
  const int64_t tensor = 4 * job.length * job.config.n_embd * 4;
  EXPECT_EQ(dense.cuts[1].forward, 25 * tensor);
  EXPECT_EQ(dense.cut_bytes(), 2 * 25 * tensor * 8);
  ClusterJob naive = Job("1x1");
  naive.all_sources = true;
  EXPECT_EQ(Tensors(PlanLayout(naive, Hosts(4), {1, 4, 4})), (std::vector<int>{13, 25, 37}));
}

TEST(LayoutTest, BytesAreWhatTheRanksCount) {
  const ThreadsGuard threads(1);
  ClusterJob job = Job("2x3", 9);
  job.compute = DType::kBF16;
  job.batch_size = 12;
  job.length = 5;
  const Layout layout = PlanLayout(job, Hosts(3), {1, 3, 4});
  std::vector<int> cuts;
  for (const LayoutCut& cut : layout.cuts) cuts.push_back(cut.block);
  const std::vector<Stage> plan =
      PlanStages(DepthPattern::Parse(job.config.dwa, job.config.n_layer), cuts);
  const RandomBatch batch(job.config, 4, 5, 1);
  RunRanks(3, [&](Communicator& stages) {
    const size_t s = static_cast<size_t>(stages.rank());
    const Model model(job.config, job.compute, ModelUse::kTraining, &plan[s]);
    Pipeline pipeline(model, stages, layout.micro_batches, 4, 5, /*recompute=*/false);
    pipeline.ForwardBackward(layout.micro_batches, [&](int) {
      return PipelinePass{batch.batch(), {}, 1};
    });
    if (s + 1 == plan.size()) return;
    EXPECT_EQ(stages.traffic().sent[s + 1], layout.cuts[s].forward * layout.micro_batches);
    EXPECT_EQ(stages.traffic().received[s + 1], layout.cuts[s].backward * layout.micro_batches);
  });
}

TEST(LayoutTest, BytesBetweenCopiesAreWhatTheRanksCount) {
  ClusterJob job = Job("2x3", 4);
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    job.compute = compute;
    const Layout layout = PlanLayout(job, Hosts(2), {2, 1, 1});
    std::vector<int64_t> sent(2);
    RunRanks(2, [&](Communicator& copies) {
      Model model(job.config, compute, ModelUse::kTraining);
      DataParallel parallel(copies, model);
      double loss = 0;
      parallel.Reduce(model.gradients(), loss);
      parallel.GatherWeights(model);
      // Besides the loss.
      sent[static_cast<size_t>(copies.rank())] =
          copies.traffic().total_sent() - static_cast<int64_t>(sizeof(loss));
    });
    EXPECT_EQ(std::max(sent[0], sent[1]), layout.reduced_bytes);
  }
}

TEST(LayoutTest, MomentsAreSharedByTheCopies) {
  const Layout one = PlanLayout(Job("4x5"), Hosts(4), {1, 4, 1});
  const Layout four = PlanLayout(Job("4x5"), Hosts(16), {4, 4, 1});
  EXPECT_EQ(one.stages[1].memory.moments, 4 * four.stages[1].memory.moments);
  EXPECT_EQ(one.reduced_bytes, 0);
  EXPECT_GT(four.reduced_bytes, 0);
  // A stage holds its blocks' parameters alone.
  const Layout whole = PlanLayout(Job("4x5"), Hosts(1), {1, 1, 1});
  EXPECT_LT(one.stages[1].memory.weights, whole.stages[0].memory.weights / 3);
}

TEST(LayoutTest, TheBestFitsIntoMemory) {
  ClusterSpec spec = Hosts(4);
  const std::vector<Layout> all = PlanLayouts(Job("4x5"), spec, {0, 0, 0});
  EXPECT_GT(all.size(), 3u);
  for (size_t i = 1; i < all.size(); ++i) EXPECT_LE(all[i - 1].step(), all[i].step());
  int64_t least = all[0].memory();
  for (const Layout& layout : all) least = std::min(least, layout.memory());
  spec.memory = least;
  EXPECT_EQ(PlanLayouts(Job("4x5"), spec, {0, 0, 0}).front().memory(), least);
}

TEST(LayoutTest, RefusesWhatDoesNotDivide) {
  ExpectError(ErrorCode::kUsage, "2 copies of 3 stages are 6 ranks, but there are 4", [] {
    PlanLayout(Job("4x5"), Hosts(4), {2, 3, 1});
  });
  ExpectError(ErrorCode::kUsage, "does not divide into micro-batches of 5 on 1 copies", [] {
    PlanLayout(Job("4x5"), Hosts(4), {1, 4, 5});
  });
  ExpectError(ErrorCode::kUsage, "no layout of 7 ranks", [] {
    PlanLayouts(Job("4x5", 6), Hosts(7), {0, 0, 0});
  });
}

}  // namespace
}  // namespace denseformer
