#include "base/memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <vector>

#include "base/error_testing.h"
#include "base/testing.h"

namespace denseformer {
namespace {

TEST(MemoryTest, SaysWhatIsFree) {
  EXPECT_GT(AvailableMemory(), int64_t{1} << 20);
  EXPECT_LT(AvailableMemory(), int64_t{1} << 50);
}

TEST(MemoryTest, MoreThanTheMachineHasIsAnError) {
  RequireMemory("a byte", 1, "");
  ExpectError(ErrorCode::kUnsupported, "a dream needs about 1024.00 TiB of memory, and ",
              [] { RequireMemory("a dream", int64_t{1} << 50, "wake up"); });
  ExpectError(ErrorCode::kUnsupported, " are free here; wake up",
              [] { RequireMemory("a dream", int64_t{1} << 50, "wake up"); });
}

TEST(MemoryTest, ThePeakStays) {
  const size_t bytes = size_t{64} << 20;
  const int64_t before = PeakMemory();
  EXPECT_GT(before, 0);
  { const std::vector<char> large(static_cast<size_t>(before) + bytes, 1); }
  EXPECT_GE(PeakMemory(), before + static_cast<int64_t>(bytes));
}

TEST(MemoryTest, ResidentMemoryFollowsWhatIsHeld) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  const int64_t before = ResidentMemory();
  {
    const std::vector<char> large(static_cast<size_t>(kBytes), 1);
    // Without a use, a compiler may leave out the allocation.
    asm volatile("" : : "r"(large.data()) : "memory");
    EXPECT_GE(ResidentMemory(), before + kBytes - (kBytes >> 4));
  }
  // A sanitizer keeps freed memory for a while.
  if (!kSanitized) {
    EXPECT_LT(ResidentMemory(), before + kBytes / 2);
  }
}

// In a process of its own, because the limit stays.
TEST(MemoryTest, ALimitOnTheAddressSpaceCounts) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    RequireAddressSpace("nothing", int64_t{1} << 50);  // no limit yet
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limit{};
    limit.rlim_cur = limit.rlim_max =
        static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + (int64_t{8} << 30));
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(2);
    if (AvailableMemory() > int64_t{8} << 30) _exit(3);
    RequireAddressSpace("little", 1 << 20);
    try {
      RequireAddressSpace("threads", int64_t{9} << 30);
    } catch (const Error& error) {
      const std::string message = error.what();
      _exit(message.starts_with("not enough memory: threads needs about 9.00 GiB") ? 0 : 5);
    }
    _exit(4);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace denseformer
