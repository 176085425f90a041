#include "train/weight_exchange.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "kernels/convert.h"

namespace denseformer {
namespace {

std::span<float> Slice(std::span<float> buffer, const Range& range) {
  return buffer.subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.size()));
}

int64_t Size(const std::vector<Range>& ranges) {
  int64_t size = 0;
  for (const Range& range : ranges) size += range.size();
  return size;
}

// The memory of whole pages is given back. All values read as 0 until they are written again;
// `huge`: to huge pages.
void GiveBack(std::span<float> values, bool huge = false) {
  static const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* begin = values.data();
  size_t space = values.size_bytes();
  if (std::align(page, page, begin, space) == nullptr) {
    return std::fill(values.begin(), values.end(), 0.0f);
  }
  const size_t bytes = space / page * page;
  float* const end = static_cast<float*>(begin) + bytes / sizeof(float);
  std::fill(values.data(), static_cast<float*>(begin), 0.0f);
  std::fill(end, values.data() + values.size(), 0.0f);
  // Else the system may join what is in use to huge pages again.
  if (!huge) madvise(begin, bytes, MADV_NOHUGEPAGE);
  if (madvise(begin, bytes, MADV_DONTNEED) != 0) std::fill(static_cast<float*>(begin), end, 0.0f);
}

}  // namespace

WeightExchange::WeightExchange(Communicator& group, const Model& model,
                               const std::vector<GradientBucket>& buckets)
    : group_(group), vectors_(static_cast<size_t>(group.size())) {
  int ready_at = -1;
  for (const GradientBucket& bucket : buckets) {
    const bool joins = !parts_.empty() && ready_at == bucket.ready_at &&
                       parts_.back().range.end == bucket.range.begin;
    if (!joins) {
      parts_.push_back(
          {bucket.range, {}, model.compute() == DType::kBF16 && bucket.ready_at > 0, {}});
    }
    parts_.back().range.end = bucket.range.end;
    parts_.back().buckets.push_back(bucket.range);
    ready_at = bucket.ready_at;
  }
  for (Part& part : parts_) {
    if (part.half) Plan(model.table(), part);
  }
}

void WeightExchange::Plan(const ParameterTable& table, Part& part) {
  for (const Range& bucket : part.buckets) {
    const Range mine = ShardIn(bucket, group_.rank(), group_.size());
    for (const Parameter& p : table.all()) {
      const Range own = Intersect(bucket, {p.offset, p.offset + p.count()});
      if (own.size() == 0) continue;
      if (p.matrix()) {
        for (const Range& other : {Range{own.begin, std::min(own.end, mine.begin)},
                                   Range{std::max(own.begin, mine.end), own.end}}) {
          if (other.size() > 0) part.given.push_back(other);
        }
        continue;
      }
      for (int r = 0; r < group_.size(); ++r) {
        const Range piece = Intersect(own, ShardIn(bucket, r, group_.size()));
        if (piece.size() > 0) vectors_[static_cast<size_t>(r)].push_back(piece);
      }
    }
  }
}

void WeightExchange::Wait(std::vector<std::unique_ptr<Message>>& messages) {
  const auto begin = std::chrono::steady_clock::now();
  for (const std::unique_ptr<Message>& message : messages) message->Wait();
  messages.clear();
  waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void WeightExchange::Gather(Model& model) {
  for (size_t i = 0; i <= parts_.size(); ++i) {
    if (i < parts_.size()) Start(model, parts_[i], transfers_[i % 2]);
    if (i > 0) Finish(model, parts_[i - 1], transfers_[(i - 1) % 2]);
  }
  GatherVectors(model);
}

void WeightExchange::Start(Model& model, const Part& part, Transfer& transfer) {
  const int rank = group_.rank(), size = group_.size();
  const size_t element = part.half ? sizeof(bf16) : sizeof(float);
  std::byte* values = reinterpret_cast<std::byte*>(model.weights().data() + part.range.begin);
  if (part.half) {
    const size_t bytes = static_cast<size_t>(part.range.size()) * sizeof(bf16);
    if (transfer.values.bytes() < bytes) transfer.values = Storage(bytes);
    values = static_cast<std::byte*>(transfer.values.data());
  }
  const auto bytes_of = [&](const Range& range) {
    return std::span(values + static_cast<size_t>(range.begin - part.range.begin) * element,
                     static_cast<size_t>(range.size()) * element);
  };
  for (const Range& bucket : part.buckets) {
    const Range mine = ShardIn(bucket, rank, size);
    if (part.half && mine.size() > 0) {
      Convert(Tensor(model.weights().data() + mine.begin, {mine.size()}),
              Tensor(reinterpret_cast<bf16*>(bytes_of(mine).data()), {mine.size()}));
    }
    for (int step = 1; step < size; ++step) {
      const int from = (rank + size - step) % size;
      const Range theirs = ShardIn(bucket, from, size);
      if (theirs.size() == 0) continue;
      transfer.messages.push_back(
          group_.StartReceive(from, MessageTag::kWeights, bytes_of(theirs)));
    }
    for (int step = 1; step < size && mine.size() > 0; ++step) {
      transfer.messages.push_back(
          group_.StartSend((rank + step) % size, MessageTag::kWeights, bytes_of(mine)));
    }
  }
}

void WeightExchange::Finish(Model& model, const Part& part, Transfer& transfer) {
  Wait(transfer.messages);
  if (part.half) {
    bf16* values = static_cast<bf16*>(transfer.values.data());
    for (const Range& bucket : part.buckets) {
      for (int r = 0; r < group_.size(); ++r) {
        const Range theirs = ShardIn(bucket, r, group_.size());
        if (r == group_.rank() || theirs.size() == 0) continue;
        Convert(Tensor(values + (theirs.begin - part.range.begin), {theirs.size()}),
                Tensor(model.weights().data() + theirs.begin, {theirs.size()}));
      }
    }
  }
  model.WeightsChanged(part.range.begin, part.range.end);
  ReleasePart(model, part);
}

// Norms, biases and gains of the bf16 parts, in fp32.
void WeightExchange::GatherVectors(Model& model) {
  const int rank = group_.rank(), size = group_.size();
  const std::span<float> weights = model.weights();
  size_t total = 0;
  std::vector<std::span<float>> of(static_cast<size_t>(size));
  for (const std::vector<Range>& ranges : vectors_) total += static_cast<size_t>(Size(ranges));
  vector_values_.resize(total);
  float* next = vector_values_.data();
  for (int r = 0; r < size; ++r) {
    const std::vector<Range>& ranges = vectors_[static_cast<size_t>(r)];
    of[static_cast<size_t>(r)] = {next, static_cast<size_t>(Size(ranges))};
    next += Size(ranges);
  }
  const auto copy = [&](int r, bool out) {
    float* at = of[static_cast<size_t>(r)].data();
    for (const Range& range : vectors_[static_cast<size_t>(r)]) {
      const std::span<float> values = Slice(weights, range);
      if (out) {
        std::copy(values.begin(), values.end(), at);
      } else {
        std::copy_n(at, values.size(), values.begin());
      }
      at += range.size();
    }
  };
  copy(rank, /*out=*/true);
  std::vector<std::unique_ptr<Message>> messages;
  for (int r = 0; r < size; ++r) {
    if (r == rank || of[static_cast<size_t>(r)].empty()) continue;
    messages.push_back(group_.StartReceive(r, MessageTag::kWeights,
                                           std::as_writable_bytes(of[static_cast<size_t>(r)])));
  }
  const std::span<const float> mine = of[static_cast<size_t>(rank)];
  for (int r = 0; r < size && !mine.empty(); ++r) {
    if (r == rank) continue;
    messages.push_back(group_.StartSend(r, MessageTag::kWeights, std::as_bytes(mine)));
  }
  Wait(messages);
  for (int r = 0; r < size; ++r) {
    if (r != rank) copy(r, /*out=*/false);
  }
}

void WeightExchange::GatherMasters(Model& model) {
  for (const Part& part : parts_) {
    if (!part.half) continue;
    for (const Range& bucket : part.buckets) {
      GatherShards(group_, bucket.size(),
                   Slice(model.weights(), ShardIn(bucket, group_.rank(), group_.size())),
                   group_.first() ? Slice(model.weights(), bucket) : std::span<float>());
    }
  }
}

void WeightExchange::Release(Model& model) {
  for (const Part& part : parts_) ReleasePart(model, part);
}

void WeightExchange::ReleaseUntilFirstStep(Model& model) {
  const bool shares = std::any_of(parts_.begin(), parts_.end(),
                                  [](const Part& part) { return !part.given.empty(); });
  if (!shares) return;
  Release(model);
  GiveBack(model.gradients(), /*huge=*/true);
}

void WeightExchange::ReleasePart(Model& model, const Part& part) {
  for (const Range& range : part.given) GiveBack(Slice(model.weights(), range));
}

}  // namespace denseformer
