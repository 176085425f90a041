#include "tensor/scratch.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>

namespace denseformer {
namespace {

TEST(ThreadScratch, IsKeptAndGrows) {
  void* const small = ThreadScratch(100);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(small) % kAlignment, 0u);
  std::memset(small, 1, 100);
  EXPECT_EQ(ThreadScratch(50), small);
  std::memset(ThreadScratch(100000), 2, 100000);
  void* const large = ThreadScratch(100000);
  EXPECT_EQ(ThreadScratch(10), large);
}

TEST(ThreadScratch, EachThreadHasItsOwn) {
  void* const mine = ThreadScratch(100);
  void* theirs = nullptr;
  std::thread([&] { theirs = ThreadScratch(100); }).join();
  EXPECT_NE(mine, theirs);
}

// An odd number of bytes, then doubles, which want alignment.
double* Plan(ScratchPlan& plan) {
  plan.Take<char>(3);
  return plan.Take<double>(9);
}

TEST(ScratchPlan, TheMeasuredSizeIsEnough) {
  ScratchPlan measure;
  EXPECT_EQ(Plan(measure), nullptr);
  EXPECT_EQ(measure.used(), 64u + 128u);
  char* const block = static_cast<char*>(ThreadScratch(measure.used()));
  ScratchPlan plan(block);
  EXPECT_EQ(reinterpret_cast<char*>(Plan(plan)), block + 64);
  EXPECT_EQ(plan.used(), measure.used());
}

}  // namespace
}  // namespace denseformer
