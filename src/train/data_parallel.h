// Data parallel training: every process (rank) has the whole model and a share of the sequences of
// each pass; gradients are summed over the ranks, and each rank keeps the moments of, and updates,
// its shard of the parameters only.
//
// A shard is the rank's part (ShardRange) of every bucket (gradient_buckets.h), so that all ranks
// send and receive the same amount at any time. Per step and rank, with n bytes of fp32 parameters
// on R ranks, n (R - 1) / R bytes of gradients go out and come in, and as many of weights, half of
// it for bf16 compute (weight_exchange.h). Buckets travel while the backward pass goes on. Sums are
// taken in the order of the ranks.
#ifndef DENSEFORMER_TRAIN_DATA_PARALLEL_H_
#define DENSEFORMER_TRAIN_DATA_PARALLEL_H_

#include <cstdint>
#include <span>
#include <vector>

#include "data/batches.h"
#include "dist/collectives.h"
#include "train/gradient_buckets.h"
#include "train/train_step.h"
#include "train/weight_exchange.h"

namespace denseformer {

// What communication has cost this rank.
struct CommunicationCost {
  int64_t steps = 0;
  double gradient_wait = 0, weight_wait = 0;  // seconds in which the rank only waited
  int64_t gradient_bytes = 0;                 // of all buckets
  int64_t hidden_bytes = 0;                   // of those reduced by the end of the backward pass

  double hidden_share() const {
    return gradient_bytes == 0
               ? 0
               : static_cast<double>(hidden_bytes) / static_cast<double>(gradient_bytes);
  }
};

// Bytes that a rank sends to the others per step.
struct StepTraffic {
  int64_t gradients = 0, weights = 0;
  int64_t total() const { return gradients + weights; }
};
// Of each of `ranks` ranks, and of the one that sends most.
std::vector<StepTraffic> TrafficOf(const ParameterTable& table, DType compute, int ranks);
StepTraffic BusiestTraffic(const ParameterTable& table, DType compute, int ranks);

// The sequences of a pass of `pass_sequences` that a rank of the group works on. Throws kUsage
// where there are fewer than ranks.
SampleRange PassShare(int64_t pass_sequences, const Communicator& group);

// Moments of a whole model, for as long as a checkpoint is written or read; empty for size 0.
class WholeMoments {
 public:
  explicit WholeMoments(size_t size)
      : first_(size * sizeof(float)), second_(size * sizeof(float)), size_(size) {}
  Moments moments() const {
    return {{static_cast<float*>(first_.data()), size_},
            {static_cast<float*>(second_.data()), size_}};
  }

 private:
  Storage first_, second_;
  size_t size_;
};

class DataParallel : public StepReducer {
 public:
  // Communicator and model must outlive it.
  DataParallel(Communicator& group, Model& model, const BucketSizes& sizes = {});

  void BlockDone(std::span<float> gradients, int block) override;
  void Reduce(std::span<float> gradients, double& loss) override;
  double ReduceSquares(double squares) override;
  void GatherWeights(Model& model) override;
  std::span<const Range> owned() const override { return owned_; }

  // The moments of the shards to the whole ones on the group's rank 0, and back; `whole` is empty
  // on the others.
  void GatherMoments(const Moments& shard, const Moments& whole);
  void ScatterMoments(const Moments& whole, const Moments& shard);
  // To be called first, before other memory is taken (weight_exchange.h).
  void ReleaseUntilFirstStep() { exchange_.ReleaseUntilFirstStep(model_); }
  // The weights of rank 0 to all.
  void SendWeights();
  // Calls save() while the group's rank 0 has all weights.
  void WithWholeWeights(FunctionRef<void()> save);

  Communicator& group() { return group_; }
  const CommunicationCost& cost() const { return cost_; }

 private:
  void StartReady(std::span<float> gradients, int block);
  void Gather(std::span<const float> shard, std::span<float> whole);
  void Scatter(std::span<const float> whole, std::span<float> shard);

  Communicator& group_;
  Model& model_;
  std::vector<GradientBucket> buckets_;
  WeightExchange exchange_;
  std::vector<Range> owned_;               // of each bucket, in their order
  std::vector<ReduceScatter> reductions_;  // under way: bucket b in b % kInFlight
  size_t next_ = 0;                        // bucket to start
  CommunicationCost cost_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_DATA_PARALLEL_H_
