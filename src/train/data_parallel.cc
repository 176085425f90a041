#include "train/data_parallel.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace denseformer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kInFlight = 4;

double Since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

template <class T>
std::span<T> Part(std::span<T> buffer, const Range& range) {
  return buffer.subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.size()));
}

}  // namespace

std::vector<StepTraffic> TrafficOf(const ParameterTable& table, DType compute, int ranks) {
  constexpr int64_t kFloat = sizeof(float), kHalf = sizeof(bf16);
  std::vector<StepTraffic> sent(static_cast<size_t>(ranks));
  for (const GradientBucket& bucket : MakeBuckets(table)) {
    const bool half = compute == DType::kBF16 && bucket.ready_at > 0;
    std::vector<Range> vectors;  // go in fp32 as well
    for (const Parameter& p : table.all()) {
      const Range own = Intersect(bucket.range, {p.offset, p.offset + p.count()});
      if (half && !p.matrix() && own.size() > 0) vectors.push_back(own);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      const Range own = ShardIn(bucket.range, rank, ranks);
      int64_t weights = own.size() * (half ? kHalf : kFloat);
      for (const Range& vector : vectors) weights += Intersect(own, vector).size() * kFloat;
      sent[static_cast<size_t>(rank)].gradients += (bucket.range.size() - own.size()) * kFloat;
      sent[static_cast<size_t>(rank)].weights += weights * (ranks - 1);
    }
  }
  return sent;
}

StepTraffic BusiestTraffic(const ParameterTable& table, DType compute, int ranks) {
  const std::vector<StepTraffic> sent = TrafficOf(table, compute, ranks);
  return *std::max_element(sent.begin(), sent.end(),
                           [](const auto& a, const auto& b) { return a.total() < b.total(); });
}

SampleRange PassShare(int64_t pass_sequences, const Communicator& group) {
  if (pass_sequences < group.size()) {
    Throw(
        ErrorCode::kUsage,
        "train: {} sequences per pass (train.batch_size / train.accumulate) on {} ranks, expected "
        "at least one for each; lower train.accumulate, raise train.batch_size, or start at most "
        "{} ranks",
        pass_sequences, group.size(), pass_sequences);
  }
  return ShardOf(pass_sequences, group.rank(), group.size());
}

DataParallel::DataParallel(Communicator& group, Model& model, const BucketSizes& sizes)
    : group_(group),
      model_(model),
      buckets_(MakeBuckets(model.table(), sizes)),
      exchange_(group, model, buckets_) {
  for (const GradientBucket& bucket : buckets_) {
    owned_.push_back(ShardIn(bucket.range, group.rank(), group.size()));
  }
  for (size_t i = 0; i < kInFlight; ++i) reductions_.emplace_back(group);
}

void DataParallel::StartReady(std::span<float> gradients, int block) {
  for (; next_ < buckets_.size() && buckets_[next_].ready_at >= block; ++next_) {
    ReduceScatter& reduction = reductions_[next_ % kInFlight];
    const Clock::time_point begin = Clock::now();
    reduction.Finish();
    cost_.gradient_wait += Since(begin);
    const std::span<float> bucket = Part(gradients, buckets_[next_].range);
    reduction.Start(bucket, {0, static_cast<int64_t>(bucket.size())});
  }
}

void DataParallel::BlockDone(std::span<float> gradients, int block) {
  for (ReduceScatter& reduction : reductions_) reduction.Poll();
  StartReady(gradients, block);
}

void DataParallel::Reduce(std::span<float> gradients, double& loss) {
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const int64_t bytes = buckets_[b].range.size() * static_cast<int64_t>(sizeof(float));
    cost_.gradient_bytes += bytes;
    const bool started = b < next_;
    if (started && (b + kInFlight < next_ || reductions_[b % kInFlight].Poll())) {
      cost_.hidden_bytes += bytes;
    }
  }
  ++cost_.steps;
  // All that are left; those of the blocks too where a pass ended early.
  StartReady(gradients, 0);
  const Clock::time_point begin = Clock::now();
  for (ReduceScatter& reduction : reductions_) reduction.Finish();
  next_ = 0;
  double sum = 0;
  for (const double part : Exchange(group_, loss)) sum += part;
  loss = sum;
  cost_.gradient_wait += Since(begin);
}

double DataParallel::ReduceSquares(double squares) {
  double sum = 0;
  for (const double part : Exchange(group_, squares)) sum += part;
  return sum;
}

void DataParallel::GatherWeights(Model& model) {
  exchange_.Gather(model);
  cost_.weight_wait = exchange_.waited();
}

void DataParallel::Gather(std::span<const float> shard, std::span<float> whole) {
  size_t at = 0;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const Range& range = buckets_[b].range;
    const size_t count = static_cast<size_t>(owned_[b].size());
    GatherShards(group_, range.size(), shard.subspan(at, count),
                 group_.first() ? Part(whole, range) : whole);
    at += count;
  }
}

void DataParallel::Scatter(std::span<const float> whole, std::span<float> shard) {
  size_t at = 0;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const Range& range = buckets_[b].range;
    const size_t count = static_cast<size_t>(owned_[b].size());
    ScatterShards(group_, range.size(), group_.first() ? Part(whole, range) : whole,
                  shard.subspan(at, count));
    at += count;
  }
}

void DataParallel::GatherMoments(const Moments& shard, const Moments& whole) {
  Gather(shard.first, whole.first);
  Gather(shard.second, whole.second);
}

void DataParallel::ScatterMoments(const Moments& whole, const Moments& shard) {
  Scatter(whole.first, shard.first);
  Scatter(whole.second, shard.second);
}

void DataParallel::SendWeights() {
  Broadcast(group_, model_.weights());
  model_.WeightsChanged();
  exchange_.Release(model_);
}

void DataParallel::WithWholeWeights(FunctionRef<void()> save) {
  exchange_.GatherMasters(model_);
  save();
  exchange_.Release(model_);
}

}  // namespace denseformer
