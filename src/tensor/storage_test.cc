#include "tensor/storage.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "base/error_testing.h"

namespace denseformer {
namespace {

bool Aligned(const void* data, size_t alignment) {
  return reinterpret_cast<uintptr_t>(data) % alignment == 0;
}

TEST(Storage, IsAlignedAndZero) {
  for (size_t bytes : {size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{4097},
                       (size_t{2} << 20) - 1, size_t{2} << 20, (size_t{4} << 20) + 3}) {
    Storage storage(bytes);
    EXPECT_EQ(storage.bytes(), bytes);
    EXPECT_TRUE(Aligned(storage.data(), bytes >= size_t{2} << 20 ? size_t{2} << 20 : kAlignment));
    const char* data = static_cast<const char*>(storage.data());
    for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(data[i], 0) << i;
    std::memset(storage.data(), 0xff, bytes);
  }
}

TEST(Storage, OfNothing) {
  EXPECT_EQ(Storage().data(), nullptr);
  EXPECT_EQ(Storage(0).data(), nullptr);
  EXPECT_EQ(Storage(0).bytes(), 0u);
}

TEST(Storage, Moves) {
  Storage a(100);
  void* data = a.data();
  Storage b(std::move(a));
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(b.bytes(), 100u);
  Storage c(50);
  c = std::move(b);
  EXPECT_EQ(c.data(), data);
  EXPECT_EQ(c.bytes(), 100u);
}

TEST(Storage, SaysHowMuchWasAskedForWhenThereIsNotEnough) {
  ExpectError(ErrorCode::kUnsupported, "not enough memory: 1048576.00 TiB asked for",
              [] { Storage storage(size_t{1} << 60); });
  ExpectError(ErrorCode::kUnsupported, "not enough memory", [] { Storage storage(SIZE_MAX - 5); });
}

// Two tensors and, between mark and release, scratch.
size_t Plan(Arena& arena) {
  const Tensor a = arena.Allocate(DType::kF32, {3, 5});
  const size_t mark = arena.Mark();
  arena.Allocate(DType::kBF16, {1000});
  arena.Release(mark);
  const Tensor b = arena.Allocate(DType::kBF16, {7});
  EXPECT_EQ(a.shape(), (Shape{3, 5}));
  EXPECT_EQ(b.dtype(), DType::kBF16);
  if (!arena.measuring()) {
    EXPECT_TRUE(Aligned(a.raw(), kAlignment));
    EXPECT_TRUE(Aligned(b.raw(), kAlignment));
    EXPECT_GE(static_cast<char*>(b.raw()) - static_cast<char*>(a.raw()), 60);
    std::memset(a.raw(), 1, a.bytes());
    std::memset(b.raw(), 1, b.bytes());
  } else {
    EXPECT_TRUE(a.empty());
  }
  return arena.peak();
}

TEST(Arena, TheMeasuredSizeIsEnough) {
  Arena measure;
  const size_t bytes = Plan(measure);
  EXPECT_EQ(bytes, 64u + 2048u);
  EXPECT_EQ(measure.used(), 64u + 64u);
  Arena arena(bytes);
  EXPECT_EQ(Plan(arena), bytes);
}

TEST(Arena, TensorsDoNotOverlap) {
  Arena arena(3 * kAlignment);
  const Tensor a = arena.Allocate(DType::kF32, {1}), b = arena.Allocate(DType::kF32, {1});
  a.f32()[0] = 1;
  b.f32()[0] = 2;
  EXPECT_EQ(a.f32()[0], 1);
  EXPECT_NE(a.raw(), b.raw());
}

TEST(Arena, EmptyTensorsTakeNothing) {
  Arena arena(64);
  arena.Allocate(DType::kF32, {0, 10});
  EXPECT_EQ(arena.used(), 0u);
}

TEST(Arena, RefusesMoreThanItHas) {
  Arena arena(64);
  arena.Allocate(DType::kF32, {16});
  ExpectError(ErrorCode::kInternal, "arena of 64 bytes", [&] { arena.Allocate(DType::kF32, {1}); });
}

TEST(Arena, RefusesSenselessSizesAndMarks) {
  Arena arena;
  ExpectError(ErrorCode::kInternal, "check failed",
              [&] { arena.Allocate(DType::kF32, {INT64_MAX}); });
  ExpectError(ErrorCode::kInternal, "mark <= used_", [&] { arena.Release(64); });
}

}  // namespace
}  // namespace denseformer
