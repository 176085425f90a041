#include "perf/memory_limit.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "perf/memory_limit.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/parallel.h"
#include "kernels/simd.h"
#include "kernels/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// So far ahead that the memory is never idle; beyond the hardware's own prefetching.
constexpr int64_t kAheadWords = 1024;

uint64_t SumOfRange(const uint64_t* words, int64_t n) {
  const hn::ScalableTag<uint64_t> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    __builtin_prefetch(words + i + kAheadWords);
    __builtin_prefetch(words + i + kAheadWords + lanes);
    sum0 = hn::Add(sum0, hn::LoadU(d, words + i));
    sum1 = hn::Add(sum1, hn::LoadU(d, words + i + lanes));
  }
  // Lane by lane: the reduction of some compilers adds them as signed numbers.
  HWY_ALIGN uint64_t parts[hn::MaxLanes(d)];
  hn::Store(hn::Add(sum0, sum1), d, parts);
  uint64_t total = 0;
  for (int64_t lane = 0; lane < lanes; ++lane) total += parts[lane];
  for (; i < n; ++i) total += words[i];
  return total;
}

void RotateRange(float* HWY_RESTRICT a, const float* HWY_RESTRICT b, float* HWY_RESTRICT c,
                 float* HWY_RESTRICT e, int64_t n) {
  const hn::ScalableTag<float> d;
  ForEachVector(d, n, [&](int64_t i, auto lanes) HWY_ATTR {
    __builtin_prefetch(b + i + kAheadWords);
    for (const float* array : {a, c, e}) __builtin_prefetch(array + i + kAheadWords, /*rw=*/1);
    const auto x = LoadLanes(d, a + i, lanes), y = LoadLanes(d, b + i, lanes);
    const auto z = LoadLanes(d, c + i, lanes), w = LoadLanes(d, e + i, lanes);
    StoreLanes(d, z, a + i, lanes);
    StoreLanes(d, w, c + i, lanes);
    StoreLanes(d, hn::Max(x, y), e + i, lanes);
  });
}

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

HWY_EXPORT(SumOfRange);
HWY_EXPORT(RotateRange);
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

uint64_t ReadBytes(std::span<const std::byte> bytes) {
  const uint64_t* words = reinterpret_cast<const uint64_t*>(bytes.data());
  std::atomic<uint64_t> total{0};
  ParallelFor(static_cast<int64_t>(bytes.size() / 8), /*grain=*/1 << 16,
              [&](int64_t begin, int64_t end, int) {
                total += DF_DYNAMIC_DISPATCH(SumOfRange)(words + begin, end - begin);
              });
  return total;
}

void TouchFour(std::span<float> a, std::span<const float> b, std::span<float> c,
               std::span<float> d) {
  ParallelFor(
      static_cast<int64_t>(a.size()), /*grain=*/1 << 16, [&](int64_t begin, int64_t end, int) {
        DF_DYNAMIC_DISPATCH(RotateRange)
        (a.data() + begin, b.data() + begin, c.data() + begin, d.data() + begin, end - begin);
      });
}

int64_t MemoryTraffic::bytes() const {
  int64_t sum = 0;
  for (int64_t size : read) sum += size;
  for (int64_t size : update) sum += 2 * size;
  for (int64_t size : write) sum += size;
  return sum;
}

TrafficLoop::TrafficLoop(const MemoryTraffic& traffic)
    : read_(Allocate(traffic.read)),
      update_(Allocate(traffic.update)),
      write_(Allocate(traffic.write)) {}

void TrafficLoop::Run() {
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
