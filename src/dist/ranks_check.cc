// What the ranks of a job do together: started by ranks_test.sh under mpirun.
//
//   dist_ranks_check collectives   compares every operation with what one process computes
//   dist_ranks_check fail RANK     this rank fails
//   dist_ranks_check hang RANK     this rank stops answering; the watchdog must name it
//   dist_ranks_check differ RANK   this rank has other options
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/random.h"
#include "base/text.h"
#include "dist/collectives.h"

namespace denseformer {
namespace {

// The number that rank r has at index i.
float Value(int rank, int64_t i) {
  const Random4 bits = Philox(7, static_cast<uint64_t>(rank), static_cast<uint64_t>(i));
  return static_cast<float>(bits[0]) * 0x1p-16f - 3e4f;
}

float SumInRankOrder(int size, int64_t i) {
  float sum = Value(0, i);
  for (int r = 1; r < size; ++r) sum += Value(r, i);
  return sum;
}

void CheckReduceScatter(Communicator& world, int64_t n) {
  const int rank = world.rank(), size = world.size();
  std::vector<float> buffer(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) buffer[static_cast<size_t>(i)] = Value(rank, i);
  const int64_t sent = world.traffic().total_sent(), received = world.traffic().total_received();
  // In three parts, from the end, two under way at a time, as gradients come.
  ReduceScatter reducers[] = {ReduceScatter(world), ReduceScatter(world)};
  int next = 0;
  for (int part = 2; part >= 0; --part) {
    reducers[next % 2].Finish();
    reducers[next % 2].Start(buffer, {n * part / 3, n * (part + 1) / 3});
    reducers[(next + 1) % 2].Poll();
    ++next;
  }
  for (ReduceScatter& reducer : reducers) reducer.Finish();
  const Range mine = ShardRange(n, rank, size);
  for (int64_t i = 0; i < n; ++i) {
    const bool owned = i >= mine.begin && i < mine.end;
    const float expected = owned ? SumInRankOrder(size, i) : Value(rank, i);
    DF_CHECK_MSG(buffer[static_cast<size_t>(i)] == expected, "rank {} of {}, element {} of {}",
                 rank, size, i, n);
  }
  DF_CHECK(world.traffic().total_sent() - sent == 4 * (n - mine.size()));
  DF_CHECK(world.traffic().total_received() - received == 4 * mine.size() * (size - 1));

  AllGather(world, buffer);
  for (int64_t i = 0; i < n; ++i) {
    DF_CHECK(buffer[static_cast<size_t>(i)] == SumInRankOrder(size, i));
  }
}

void CheckShards(Communicator& world, int64_t n) {
  const Range mine = ShardRange(n, world.rank(), world.size());
  std::vector<float> whole(world.first() ? static_cast<size_t>(n) : 0);
  std::vector<float> shard(static_cast<size_t>(mine.size()));
  for (size_t i = 0; i < whole.size(); ++i) whole[i] = Value(0, static_cast<int64_t>(i));
  ScatterShards(world, n, whole, shard);
  for (size_t i = 0; i < shard.size(); ++i) {
    DF_CHECK(shard[i] == Value(0, mine.begin + static_cast<int64_t>(i)));
    shard[i] += 1;
  }
  GatherShards(world, n, shard, whole);
  for (size_t i = 0; i < whole.size(); ++i) {
    DF_CHECK(whole[i] == Value(0, static_cast<int64_t>(i)) + 1);
  }
}

void CheckSmallOnes(Communicator& world) {
  DF_CHECK(BroadcastText(world, world.first() ? "from rank 0" : "other") == "from rank 0");
  DF_CHECK(BroadcastText(world, "").empty());
  const std::vector<int> ranks = Exchange(world, world.rank() * 10);
  for (int r = 0; r < world.size(); ++r) DF_CHECK(ranks[static_cast<size_t>(r)] == 10 * r);
  RequireSame(world, "text", "the same\neverywhere");
  // Around the ring, long enough to need the receiver's help.
  const int next = (world.rank() + 1) % world.size();
  const int before = (world.rank() + world.size() - 1) % world.size();
  const std::vector<int32_t> out(1 << 18, world.rank());
  std::vector<int32_t> in(out.size());
  auto receive =
      world.StartReceive(before, MessageTag::kTest, std::as_writable_bytes(std::span(in)));
  world.Send(next, MessageTag::kTest, std::as_bytes(std::span(out)));
  receive->Wait();
  DF_CHECK(receive->Done());
  DF_CHECK(std::all_of(in.begin(), in.end(), [before](int32_t v) { return v == before; }));
  DF_CHECK(world.traffic().sent[static_cast<size_t>(next)] >= (1 << 20));
  Barrier(world);
}

void Run(Communicator& world, const std::string& mode, int rank) {
  if (mode == "collectives") {
    for (const int64_t n : {0, 1, 15, 16, 17, 100, 100003}) {
      CheckReduceScatter(world, n);
      CheckShards(world, n);
    }
    CheckSmallOnes(world);
  } else if (mode == "differ") {
    RequireSame(world, "options", world.rank() == rank ? "a = 1\nb = 3" : "a = 1\nb = 2");
  } else if (world.rank() == rank && mode == "fail") {
    Throw(ErrorCode::kUsage, "told to fail");
  } else if (world.rank() == rank) {
    DF_CHECK(mode == "hang");
    pause();
  } else {
    // Long enough that a rank on a busy machine is not taken for one that hangs.
    if (mode == "hang") world.SetWatchdog(15);
    Barrier(world);
  }
}

}  // namespace
}  // namespace denseformer

int main(int argc, char** argv) {
  using namespace denseformer;
  const std::unique_ptr<Communicator> world = MakeWorldCommunicator();
  try {
    if (argc != 2 && argc != 3) Throw(ErrorCode::kUsage, "wrong number of arguments");
    Run(*world, argv[1],
        argc == 3 ? static_cast<int>(ParseInt("rank", argv[2], 0, world->size() - 1)) : 0);
  } catch (const Error& error) {
    world->Fail(error.what(), ExitStatus(error.code()));
    return 1;
  }
  return 0;
}
