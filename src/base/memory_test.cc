#include "base/memory.h"

#include <gtest/gtest.h>

#include "base/error_testing.h"

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

}  // namespace
}  // namespace denseformer
