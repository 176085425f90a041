#include "kernels/dropout.h"

#include "base/parallel.h"

namespace denseformer {

void ApplyDropout(const Dropout& dropout, const Tensor& x) {
  if (!dropout.enabled()) return;
  float* data = x.f32();
  ParallelFor(x.count(), 1 << 12, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) data[i] *= dropout.Scale(static_cast<uint64_t>(i));
  });
}

}  // namespace denseformer
