// Rotary positions of whole rows (rotary-inl.h).
#include "kernels/rotary.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rotary.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "base/parallel.h"
#include "kernels/rotary-inl.h"
#include "kernels/simd.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Rows [begin, end) of qkv; a sequence has `time` rows.
void RotateRows(const Tensor& table, int64_t heads, float direction, int64_t time,
                const Tensor& qkv, int64_t begin, int64_t end) {
  const int64_t head_size = table.cols(), cols = qkv.cols();
  for (int64_t n = begin; n < end; ++n) {
    const float* angles = table.f32() + n % time * head_size;
    // q and k are contiguous: 2 * heads heads in a row.
    const auto rotate = [&](auto* row) HWY_ATTR {
      RotateHeads(angles, head_size, 2 * heads, direction, /*scale=*/1.0f, row, row);
    };
    if (qkv.dtype() == DType::kF32) {
      rotate(qkv.f32() + n * cols);
    } else {
      rotate(qkv.As<bf16>() + n * cols);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace denseformer {
namespace {

HWY_EXPORT(RotateRows);

void Rotate(const Tensor& table, int64_t heads, float direction, const Tensor& qkv) {
  const int64_t head_size = table.cols();
  DF_CHECK(qkv.shape().rank() >= 2 && head_size % 2 == 0);
  DF_CHECK(qkv.cols() == 3 * heads * head_size);
  const int64_t time = qkv.shape()[qkv.shape().rank() - 2];
  DF_CHECK_MSG(time <= table.rows(), "{} positions, table of {}", time, table.rows());
  ParallelFor(qkv.rows(), /*grain=*/8, [&](int64_t begin, int64_t end, int) {
    DF_DYNAMIC_DISPATCH(RotateRows)(table, heads, direction, time, qkv, begin, end);
  });
}

}  // namespace

void FillRotaryTable(double base, const Tensor& table) {
  const int64_t head_size = table.cols();
  DF_CHECK(head_size % 2 == 0);
  ParallelFor(table.rows(), /*grain=*/64, [&](int64_t begin, int64_t end, int) {
    for (int64_t m = 0; m < head_size / 2; ++m) {
      const double frequency =
          std::pow(base, -2.0 * static_cast<double>(m) / static_cast<double>(head_size));
      for (int64_t t = begin; t < end; ++t) {
        const double angle = static_cast<double>(t) * frequency;
        float* at = table.f32() + t * head_size + 2 * m;
        at[0] = static_cast<float>(std::cos(angle));
        at[1] = static_cast<float>(std::sin(angle));
      }
    }
  });
}

void RotaryForward(const Tensor& table, int64_t heads, const Tensor& qkv) {
  Rotate(table, heads, 1.0f, qkv);
}

void RotaryBackward(const Tensor& table, int64_t heads, const Tensor& dqkv) {
  Rotate(table, heads, -1.0f, dqkv);
}

}  // namespace denseformer
#endif  // HWY_ONCE
