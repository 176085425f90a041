#include "kernels/dropout.h"

#include <algorithm>

#include "base/parallel.h"

namespace denseformer {

void Dropout::FillScales(uint64_t index, int64_t n, float* scales) const {
  const float kept = 1.0f / (1.0f - probability);
  index += first;
  for (int64_t i = 0; i < n;) {
    const Random4 bits = Philox(seed, stream, (index + i) / 4);
    for (uint64_t j = (index + i) % 4; j < 4 && i < n; ++j, ++i) {
      scales[i] = static_cast<float>(bits[j] >> 8) * 0x1p-24f < probability ? 0.0f : kept;
    }
  }
}

void ApplyDropout(const Dropout& dropout, const Tensor& x) {
  if (!dropout.enabled()) return;
  float* data = x.f32();
  ParallelFor(x.count(), 1 << 12, [&](int64_t begin, int64_t end, int) {
    constexpr int64_t kBlock = 256;
    float scales[kBlock];
    for (int64_t at = begin; at < end; at += kBlock) {
      const int64_t count = std::min(kBlock, end - at);
      dropout.FillScales(static_cast<uint64_t>(at), count, scales);
      for (int64_t i = 0; i < count; ++i) data[at + i] *= scales[i];
    }
  });
}

}  // namespace denseformer
