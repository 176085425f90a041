#include "model/kv_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "base/memory.h"
#include "base/testing.h"

namespace denseformer {
namespace {

// A page takes blocks * width * 128 bytes in bf16, twice that in fp32.
ModelConfig Shape(int blocks, int width, int seq_len = 64) {
  ModelConfig config = ModelConfig::Preset("test");
  config.n_layer = blocks;
  config.n_embd = width;
  config.n_head = width / 16;
  config.seq_len = seq_len;
  return config;
}

TEST(KvPoolTest, LittleIsLostBesidesThePages) {
  const ModelConfig shapes[] = {Shape(1, 32),   Shape(7, 48),    Shape(150, 64),  Shape(96, 192),
                                Shape(48, 768), Shape(48, 1600), Shape(96, 4096), Shape(200, 8192)};
  for (const ModelConfig& config : shapes) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const size_t page = KvPool::PageBytes(config, dtype);
      const size_t none = KvPool::TakenBytes(config, dtype, 0);
      for (const int64_t pages : {1, 2, 3, 8, 13, 14, 15, 100, 4097}) {
        const size_t taken = KvPool::TakenBytes(config, dtype, pages);
        const size_t least = static_cast<size_t>(pages) * page;
        EXPECT_GE(taken, least + none);
        EXPECT_LE(taken, least + none + least / 25 + (size_t{2} << 20)) << page << " x " << pages;
        // Small pages share what is rounded up: more of them may fit.
        const int64_t fitting = KvPool::PagesWithin(config, dtype, taken);
        EXPECT_GE(fitting, pages) << page;
        EXPECT_EQ(KvPool::TakenBytes(config, dtype, fitting), taken) << page;
        EXPECT_LT(KvPool::PagesWithin(config, dtype, taken - 1), pages) << page;
      }
      EXPECT_EQ(KvPool::PagesWithin(config, dtype, none - 1), 0);
    }
  }
}

TEST(KvPoolTest, MemoryIsTakenPageByPageAndIsWhatWasSaid) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's memory cannot be told from the pool's";
  // Pages of 2.34 MiB, which alone would become 4 MiB, and of 148 KiB.
  for (const ModelConfig& config : {Shape(150, 64), Shape(1, 37 * 16)}) {
    const DType dtype = DType::kF32;
    const int64_t fitting = KvPool::PagesWithin(config, dtype, size_t{300} << 20);
    const int64_t before = ResidentMemory();
    KvPool pool(config, dtype, fitting);
    std::optional<KvSequence> sequence(std::in_place, pool);
    for (const int64_t pages : {fitting / 20, fitting / 3, fitting}) {
      sequence->Reserve(pages * kKvPageTokens);
      for (std::byte* page : sequence->pages()) {
        std::memset(page, 1, KvPool::PageBytes(config, dtype));
      }
      const double taken = static_cast<double>(KvPool::TakenBytes(config, dtype, pages));
      EXPECT_NEAR(static_cast<double>(ResidentMemory() - before), taken, 0.05 * taken + 3e6);
    }
    // Pages that were given back serve the next sequence.
    sequence.reset();
    const int64_t full = ResidentMemory();
    KvSequence next(pool);
    next.Reserve(fitting * kKvPageTokens);
    for (std::byte* page : next.pages()) *page = std::byte{2};
    EXPECT_LE(ResidentMemory(), full + (1 << 20));
    EXPECT_EQ(pool.free_pages(), 0);
  }
}

TEST(KvPoolTest, PagesDoNotOverlap) {
  const ModelConfig config = Shape(150, 64);
  const int64_t count = 40;  // of two slabs
  KvPool pool(config, DType::kF32, count);
  KvSequence sequence(pool);
  sequence.Reserve(count * kKvPageTokens);
  const size_t bytes = KvPool::PageBytes(config, DType::kF32);
  for (int64_t n = 0; n < count; ++n) {
    std::byte* const page = sequence.pages()[static_cast<size_t>(n)];
    EXPECT_EQ(reinterpret_cast<uintptr_t>(page) % kAlignment, 0u);
    page[0] = page[bytes - 1] = std::byte(n + 1);
  }
  for (int64_t n = 0; n < count; ++n) {
    std::byte* const page = sequence.pages()[static_cast<size_t>(n)];
    EXPECT_EQ(page[0], std::byte(n + 1));
    EXPECT_EQ(page[bytes - 1], std::byte(n + 1));
  }
}

}  // namespace
}  // namespace denseformer
