#include "perf/memory_limit.h"

#include <atomic>

#include "base/parallel.h"

namespace denseformer {

uint64_t ReadBytes(std::span<const std::byte> bytes) {
  const uint64_t* words = reinterpret_cast<const uint64_t*>(bytes.data());
  std::atomic<uint64_t> total{0};
  ParallelFor(static_cast<int64_t>(bytes.size() / 8), 1 << 16,
              [&](int64_t begin, int64_t end, int) {
                // Eight sums, so that the additions do not wait for each other.
                uint64_t sums[8] = {};
                int64_t i = begin;
                for (; i + 8 <= end; i += 8) {
                  for (int j = 0; j < 8; ++j) sums[j] += words[i + j];
                }
                for (; i < end; ++i) sums[0] += words[i];
                for (int j = 1; j < 8; ++j) sums[0] += sums[j];
                total += sums[0];
              });
  return total;
}

void TouchFour(std::span<float> a, std::span<float> b, std::span<float> c, std::span<float> d) {
  ParallelFor(static_cast<int64_t>(a.size()), 1 << 16, [&](int64_t begin, int64_t end, int) {
    float *pa = a.data(), *pb = b.data(), *pc = c.data(), *pd = d.data();
    for (int64_t i = begin; i < end; ++i) {
      const float x = pa[i], y = pb[i], z = pc[i], w = pd[i];
      pa[i] = y;
      pb[i] = z;
      pc[i] = w;
      pd[i] = x;
    }
  });
}

}  // namespace denseformer
