// Collective operations: every rank of the communicator calls the same one with arguments that fit.
//
// Sums are taken in the order of the ranks, ((v_0 + v_1) + v_2) + ..., so that the same job on the
// same number of ranks gives the same bits. Bytes per rank, for a buffer of n bytes on R ranks:
// reduce-scatter and all-gather n (R - 1) / R each way, which is the least that is possible.
#ifndef DENSEFORMER_DIST_COLLECTIVES_H_
#define DENSEFORMER_DIST_COLLECTIVES_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "dist/communicator.h"
#include "tensor/storage.h"

namespace denseformer {

// Elements [begin, end).
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// The part of both; empty (begin == end) where there is none.
Range Intersect(const Range& a, const Range& b);

// The elements of a buffer of n that rank `rank` of `size` owns: contiguous, in the order of the
// ranks, as equal as multiples of a cache line (16 floats) allow.
Range ShardRange(int64_t n, int rank, int size);

// Reduce-scatter of the elements `part` of a buffer that is sharded by ShardRange: after Finish the
// elements of `part` that this rank owns hold the sums over all ranks; the others keep what this
// rank had. Start only starts the messages, so that the caller can compute while they travel
// (`part` must not change until Finish); Poll moves them on. An object can be used again and keeps
// its memory, (size - 1) times what this rank owns of the largest part.
class ReduceScatter {
 public:
  // The communicator must outlive it.
  explicit ReduceScatter(Communicator& communicator) : communicator_(communicator) {}

  void Start(std::span<float> buffer, Range part);
  // True once all messages have arrived.
  bool Poll();
  // Waits for the messages and adds; nothing where none was started.
  void Finish();

 private:
  void Add();

  Communicator& communicator_;
  std::span<float> owned_;  // of `part`, in the buffer
  std::vector<std::unique_ptr<Message>> messages_;
  Storage pieces_;  // of the other ranks, in their order
};

// Brings each rank's shard (ShardRange) of `buffer` to all ranks.
void AllGather(Communicator& communicator, std::span<float> buffer);

// Brings the shards of all ranks into `whole` on rank 0; the other ranks give an empty one. `shard`
// is this rank's part. And the reverse.
void GatherShards(Communicator& communicator, int64_t n, std::span<const float> shard,
                  std::span<float> whole);
void ScatterShards(Communicator& communicator, int64_t n, std::span<const float> whole,
                   std::span<float> shard);

// From rank `root` to all others.
void BroadcastBytes(Communicator& communicator, std::span<std::byte> bytes, int root = 0);
template <class T>
void Broadcast(Communicator& communicator, std::span<T> values, int root = 0) {
  static_assert(std::is_trivially_copyable_v<T>);
  BroadcastBytes(communicator, std::as_writable_bytes(values), root);
}
std::string BroadcastText(Communicator& communicator, const std::string& text, int root = 0);

// The values of all ranks, in their order, on every rank.
void ExchangeBytes(Communicator& communicator, std::span<const std::byte> mine,
                   std::span<std::byte> all);
template <class T>
std::vector<T> Exchange(Communicator& communicator, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<size_t>(communicator.size()));
  ExchangeBytes(communicator, std::as_bytes(std::span(&value, 1)),
                std::as_writable_bytes(std::span(all)));
  return all;
}

// Whether any rank says so; the same answer on all.
bool AnyRank(Communicator& communicator, bool mine);

// Returns once all ranks have called it.
void Barrier(Communicator& communicator);

// Throws kInvalid on every rank where the texts of the ranks differ; the message names `what`, the
// first rank that differs from rank 0, and the first line in which it does.
void RequireSame(Communicator& communicator, const std::string& what, const std::string& text);

}  // namespace denseformer

#endif  // DENSEFORMER_DIST_COLLECTIVES_H_
