#include "plain_loop.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plain_loop.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "base/parallel.h"
#include "kernels/simd.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

float ReadBlock(const float* x, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  for (int64_t i = 0; i + 2 * step <= n; i += 2 * step) {
    sum0 = hn::Add(sum0, hn::LoadU(d, x + i));
    sum1 = hn::Add(sum1, hn::LoadU(d, x + i + step));
  }
  return hn::GetLane(hn::Add(sum0, sum1));
}

void UpdateBlock(float* x, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  const auto half = hn::Set(d, 0.5f);
  for (int64_t i = 0; i + step <= n; i += step) {
    hn::StoreU(hn::MulAdd(hn::LoadU(d, x + i), half, half), d, x + i);
  }
}

void WriteBlock(float* x, int64_t n, float value) {
  const hn::ScalableTag<float> d;
  const int64_t step = static_cast<int64_t>(hn::Lanes(d));
  const auto v = hn::Set(d, value);
  for (int64_t i = 0; i + step <= n; i += step) hn::StoreU(v, d, x + i);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace denseformer {
namespace {

HWY_EXPORT(ReadBlock);
HWY_EXPORT(UpdateBlock);
HWY_EXPORT(WriteBlock);

std::vector<std::vector<float>> Allocate(const std::vector<int64_t>& bytes) {
  std::vector<std::vector<float>> streams;
  for (int64_t size : bytes) streams.emplace_back(size / sizeof(float), 1.0f);
  return streams;
}

// The part of block b of `blocks` in a stream: its first element and their number.
std::pair<int64_t, int64_t> BlockOf(const std::vector<float>& stream, int64_t b, int64_t blocks) {
  const int64_t size = static_cast<int64_t>(stream.size());
  return {size * b / blocks, size * (b + 1) / blocks - size * b / blocks};
}

}  // namespace

int64_t Traffic::bytes() const {
  int64_t sum = 0;
  for (int64_t size : read) sum += size;
  for (int64_t size : update) sum += 2 * size;
  for (int64_t size : write) sum += size;
  return sum;
}

PlainLoop::PlainLoop(const Traffic& traffic)
    : read_(Allocate(traffic.read)),
      update_(Allocate(traffic.update)),
      write_(Allocate(traffic.write)) {}

void PlainLoop::Run() {
  constexpr int64_t kBlock = 1024;  // elements of the longest stream
  size_t longest = 0;
  for (const auto* streams : {&read_, &update_, &write_}) {
    for (const auto& stream : *streams) longest = std::max(longest, stream.size());
  }
  const int64_t blocks = std::max<int64_t>(1, static_cast<int64_t>(longest) / kBlock);
  ParallelFor(blocks, 1, [&](int64_t begin, int64_t end, int) {
    float seen = 0;
    for (int64_t b = begin; b < end; ++b) {
      for (const auto& stream : read_) {
        const auto [at, n] = BlockOf(stream, b, blocks);
        seen += DF_DYNAMIC_DISPATCH(ReadBlock)(stream.data() + at, n);
      }
      for (auto& stream : update_) {
        const auto [at, n] = BlockOf(stream, b, blocks);
        DF_DYNAMIC_DISPATCH(UpdateBlock)(stream.data() + at, n);
      }
      for (auto& stream : write_) {
        const auto [at, n] = BlockOf(stream, b, blocks);
        DF_DYNAMIC_DISPATCH(WriteBlock)(stream.data() + at, n, seen);
      }
    }
    volatile float used = seen;  // the reads must happen
    (void)used;
  });
}

}  // namespace denseformer
#endif  // HWY_ONCE
