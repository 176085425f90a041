#include "dist/collectives.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error_testing.h"

namespace denseformer {
namespace {

TEST(ShardRange, CoversTheBufferInOrderAndEvenly) {
  for (const int64_t n : {0, 1, 16, 17, 1000, 65536, 1000003}) {
    for (const int size : {1, 2, 3, 4, 7, 64}) {
      int64_t next = 0, longest = 0, shortest = n;
      for (int rank = 0; rank < size; ++rank) {
        const Range shard = ShardRange(n, rank, size);
        EXPECT_EQ(shard.begin, next);
        EXPECT_GE(shard.size(), 0);
        EXPECT_TRUE(shard.end == n || shard.end % 16 == 0);
        longest = std::max(longest, shard.size());
        shortest = std::min(shortest, shard.size());
        next = shard.end;
      }
      EXPECT_EQ(next, n);
      EXPECT_LE(longest - shortest, 32) << n << " on " << size;
    }
  }
}

TEST(ShardRange, Intersects) {
  EXPECT_EQ(Intersect({0, 10}, {4, 20}), (Range{4, 10}));
  EXPECT_EQ(Intersect({0, 10}, {10, 20}).size(), 0);
  EXPECT_EQ(Intersect({30, 40}, {10, 20}).size(), 0);
}

TEST(Single, OperationsLeaveTheValuesAlone) {
  const auto one = MakeSingleCommunicator();
  EXPECT_EQ(one->rank(), 0);
  EXPECT_EQ(one->size(), 1);
  std::vector<float> values = {1, 2, 3};
  ReduceScatter reduce(*one);
  reduce.Start(values, {0, 3});
  EXPECT_TRUE(reduce.Poll());
  reduce.Finish();
  AllGather(*one, values);
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3}));
  std::vector<float> shard(3);
  ScatterShards(*one, 3, values, shard);
  EXPECT_EQ(shard, values);
  GatherShards(*one, 3, shard, values);
  EXPECT_EQ(BroadcastText(*one, "text"), "text");
  EXPECT_EQ(Exchange(*one, 5), std::vector<int>{5});
  Barrier(*one);
  RequireSame(*one, "options", "a");
  EXPECT_EQ(one->traffic().total_sent() + one->traffic().total_received(), 0);
}

TEST(World, IsOneRankWhereTheProcessWasStartedAlone) {
  ASSERT_EQ(std::getenv("OMPI_COMM_WORLD_SIZE"), nullptr) << "started under mpirun";
  EXPECT_EQ(LaunchedProcesses(), 1);
  EXPECT_EQ(MakeWorldCommunicator()->size(), 1);
}

TEST(World, ReadsTheNumberOfProcesses) {
  setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
  EXPECT_EQ(LaunchedProcesses(), 3);
  if (MpiVersion() == "none") {
    ExpectError(ErrorCode::kUnsupported, "3 were started together, but this program was built",
                [] { MakeWorldCommunicator(); });
  }
  unsetenv("OMPI_COMM_WORLD_SIZE");
}

}  // namespace
}  // namespace denseformer
