#include "dist/collectives.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/parallel.h"
#include "base/text.h"

namespace denseformer {
namespace {

constexpr int64_t kShardUnit = 16;  // floats of a cache line

void WaitAll(const std::vector<std::unique_ptr<Message>>& messages) {
  for (const std::unique_ptr<Message>& message : messages) message->Wait();
}

template <class T>
std::span<T> Part(std::span<T> buffer, Range range) {
  return buffer.subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.size()));
}

void SendText(Communicator& communicator, int to, const std::string& text) {
  const int64_t length = static_cast<int64_t>(text.size());
  communicator.Send(to, MessageTag::kCollective, std::as_bytes(std::span(&length, 1)));
  communicator.Send(to, MessageTag::kCollective, std::as_bytes(std::span(text)));
}

std::string ReceiveText(Communicator& communicator, int from) {
  int64_t length = 0;
  communicator.Receive(from, MessageTag::kCollective,
                       std::as_writable_bytes(std::span(&length, 1)));
  std::string text(static_cast<size_t>(length), ' ');
  communicator.Receive(from, MessageTag::kCollective, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace

Range Intersect(const Range& a, const Range& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

Range ShardRange(int64_t n, int rank, int size) {
  DF_CHECK(n >= 0 && size >= 1 && rank >= 0 && rank < size);
  const int64_t units = (n + kShardUnit - 1) / kShardUnit;
  const auto edge = [&](int r) { return std::min(n, units * r / size * kShardUnit); };
  return {edge(rank), edge(rank + 1)};
}

void ReduceScatter::Start(std::span<float> buffer, Range part) {
  DF_CHECK(messages_.empty());
  const int rank = communicator_.rank(), size = communicator_.size();
  if (size == 1) return;
  const int64_t n = static_cast<int64_t>(buffer.size());
  const Range mine = Intersect(ShardRange(n, rank, size), part);
  owned_ = Part(buffer, mine);
  const size_t bytes = owned_.size_bytes() * static_cast<size_t>(size - 1);
  if (pieces_.bytes() < bytes) pieces_ = Storage(bytes);
  std::byte* piece = static_cast<std::byte*>(pieces_.data());
  for (int r = 0; r < size; ++r) {
    if (r == rank || owned_.empty()) continue;
    messages_.push_back(
        communicator_.StartReceive(r, MessageTag::kGradients, {piece, owned_.size_bytes()}));
    piece += owned_.size_bytes();
  }
  // Each rank begins with the one behind it, so that not all send to the same one at once.
  for (int step = 1; step < size; ++step) {
    const int to = (rank + step) % size;
    const Range theirs = Intersect(ShardRange(n, to, size), part);
    if (theirs.size() == 0) continue;
    messages_.push_back(
        communicator_.StartSend(to, MessageTag::kGradients, std::as_bytes(Part(buffer, theirs))));
  }
}

bool ReduceScatter::Poll() {
  bool done = true;
  for (const std::unique_ptr<Message>& message : messages_) done = message->Done() && done;
  return done;
}

void ReduceScatter::Finish() {
  if (messages_.empty()) return;
  WaitAll(messages_);
  messages_.clear();
  Add();
}

// sum = ((v_0 + v_1) + v_2) + ... for each element.
void ReduceScatter::Add() {
  if (owned_.empty()) return;
  const int rank = communicator_.rank(), size = communicator_.size();
  const float* pieces = static_cast<const float*>(pieces_.data());
  const int64_t n = static_cast<int64_t>(owned_.size());
  ParallelFor(n, 1 << 12, [&](int64_t begin, int64_t end, int) {
    constexpr int64_t kBlock = 1024;
    float sum[kBlock];
    for (int64_t at = begin; at < end; at += kBlock) {
      const int64_t count = std::min(kBlock, end - at);
      for (int r = 0; r < size; ++r) {
        const float* piece =
            r == rank ? owned_.data() + at : pieces + (r < rank ? r : r - 1) * n + at;
        for (int64_t i = 0; i < count; ++i) sum[i] = r == 0 ? piece[i] : sum[i] + piece[i];
      }
      std::memcpy(owned_.data() + at, sum, static_cast<size_t>(count) * sizeof(float));
    }
  });
}

void AllGather(Communicator& communicator, std::span<float> buffer) {
  const int rank = communicator.rank(), size = communicator.size();
  const int64_t n = static_cast<int64_t>(buffer.size());
  std::vector<std::unique_ptr<Message>> messages;
  const std::span<float> mine = Part(buffer, ShardRange(n, rank, size));
  for (int step = 1; step < size; ++step) {
    const int from = (rank + size - step) % size;
    messages.push_back(
        communicator.StartReceive(from, MessageTag::kWeights,
                                  std::as_writable_bytes(Part(buffer, ShardRange(n, from, size)))));
  }
  for (int step = 1; step < size; ++step) {
    messages.push_back(
        communicator.StartSend((rank + step) % size, MessageTag::kWeights, std::as_bytes(mine)));
  }
  WaitAll(messages);
}

void GatherShards(Communicator& communicator, int64_t n, std::span<const float> shard,
                  std::span<float> whole) {
  const int size = communicator.size();
  DF_CHECK(static_cast<int64_t>(shard.size()) == ShardRange(n, communicator.rank(), size).size());
  if (!communicator.first()) {
    communicator.Send(0, MessageTag::kState, std::as_bytes(shard));
    return;
  }
  DF_CHECK(static_cast<int64_t>(whole.size()) == n);
  std::copy(shard.begin(), shard.end(), whole.begin());
  std::vector<std::unique_ptr<Message>> messages;
  for (int r = 1; r < size; ++r) {
    messages.push_back(communicator.StartReceive(
        r, MessageTag::kState, std::as_writable_bytes(Part(whole, ShardRange(n, r, size)))));
  }
  WaitAll(messages);
}

void ScatterShards(Communicator& communicator, int64_t n, std::span<const float> whole,
                   std::span<float> shard) {
  const int size = communicator.size();
  DF_CHECK(static_cast<int64_t>(shard.size()) == ShardRange(n, communicator.rank(), size).size());
  if (!communicator.first()) {
    communicator.Receive(0, MessageTag::kState, std::as_writable_bytes(shard));
    return;
  }
  DF_CHECK(static_cast<int64_t>(whole.size()) == n);
  std::copy_n(whole.begin(), shard.size(), shard.begin());
  std::vector<std::unique_ptr<Message>> messages;
  for (int r = 1; r < size; ++r) {
    messages.push_back(communicator.StartSend(r, MessageTag::kState,
                                              std::as_bytes(Part(whole, ShardRange(n, r, size)))));
  }
  WaitAll(messages);
}

// A binomial tree: in round k the ranks below 2^k pass it on to those 2^k above them, counted from
// the root.
void BroadcastBytes(Communicator& communicator, std::span<std::byte> bytes, int root) {
  const int size = communicator.size(), rank = (communicator.rank() + size - root) % size;
  int round = 1;
  if (rank > 0) {
    while (2 * round <= rank) round *= 2;
    communicator.Receive((rank - round + root) % size, MessageTag::kCollective, bytes);
    round *= 2;
  }
  std::vector<std::unique_ptr<Message>> messages;
  for (; rank + round < size; round *= 2) {
    messages.push_back(
        communicator.StartSend((rank + round + root) % size, MessageTag::kCollective, bytes));
  }
  WaitAll(messages);
}

std::string BroadcastText(Communicator& communicator, const std::string& text, int root) {
  int64_t length = static_cast<int64_t>(text.size());
  Broadcast(communicator, std::span(&length, 1), root);
  std::string result =
      communicator.rank() == root ? text : std::string(static_cast<size_t>(length), ' ');
  Broadcast(communicator, std::span(result), root);
  return result;
}

void ExchangeBytes(Communicator& communicator, std::span<const std::byte> mine,
                   std::span<std::byte> all) {
  const int rank = communicator.rank(), size = communicator.size();
  DF_CHECK(all.size() == mine.size() * static_cast<size_t>(size));
  std::vector<std::unique_ptr<Message>> messages;
  const auto of = [&](int r) {
    return all.subspan(mine.size() * static_cast<size_t>(r), mine.size());
  };
  std::copy(mine.begin(), mine.end(), of(rank).begin());
  for (int step = 1; step < size; ++step) {
    const int from = (rank + size - step) % size;
    messages.push_back(communicator.StartReceive(from, MessageTag::kCollective, of(from)));
  }
  for (int step = 1; step < size; ++step) {
    messages.push_back(
        communicator.StartSend((rank + step) % size, MessageTag::kCollective, of(rank)));
  }
  WaitAll(messages);
}

bool AnyRank(Communicator& communicator, bool mine) {
  const std::vector<uint8_t> all = Exchange(communicator, static_cast<uint8_t>(mine));
  return std::find(all.begin(), all.end(), 1) != all.end();
}

void Barrier(Communicator& communicator) { Exchange(communicator, std::byte{0}); }

void RequireSame(Communicator& communicator, const std::string& what, const std::string& text) {
  std::string problem;
  for (int rank = 1; rank < communicator.size(); ++rank) {
    if (communicator.rank() == rank) {
      SendText(communicator, 0, text);
    } else if (communicator.first()) {
      const std::string other = ReceiveText(communicator, rank);
      if (other == text || !problem.empty()) continue;
      const std::vector<std::string> mine = Split(text, '\n'), theirs = Split(other, '\n');
      const auto line = [](const std::vector<std::string>& lines, size_t i) {
        return i < lines.size() ? lines[i] : "";
      };
      size_t i = 0;
      while (i < mine.size() && i < theirs.size() && mine[i] == theirs[i]) ++i;
      problem =
          fmt::format("{}: rank {} has '{}', rank 0 has '{}'; they must be the same on all ranks",
                      what, rank, line(theirs, i), line(mine, i));
    }
  }
  problem = BroadcastText(communicator, problem);
  if (!problem.empty()) throw Error(ErrorCode::kInvalid, problem);
}

}  // namespace denseformer
