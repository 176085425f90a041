// Rotary positions. For a vector of pairs: v * (cos, cos) + (b, a) * (-sin, sin).
#include "kernels/rotary.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rotary.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "base/parallel.h"
#include "kernels/simd.h"
#include "kernels/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// q and k are contiguous: 2 * heads heads in a row. A vector of the table serves them all.
#if HWY_TARGET == HWY_SCALAR  // one lane: no pair in a vector
template <class T>
HWY_INLINE void RotateRow(const float* table, int64_t heads, int64_t head_size, float direction,
                          T* row) {
  for (int64_t i = 0; i < 2 * heads * head_size; i += 2) {
    const float cosine = table[i % head_size], sine = direction * table[i % head_size + 1];
    const float a = static_cast<float>(row[i]), b = static_cast<float>(row[i + 1]);
    row[i] = static_cast<T>(a * cosine - b * sine);
    row[i + 1] = static_cast<T>(b * cosine + a * sine);
  }
}
#else
template <class T>
HWY_INLINE void RotateRow(const float* table, int64_t heads, int64_t head_size, float direction,
                          T* row) {
  const hn::ScalableTag<float> d;
  const auto sign = hn::OddEven(hn::Set(d, direction), hn::Set(d, -direction));
  ForEachVector(d, head_size, [&](int64_t i, auto lanes) HWY_ATTR {
    const auto angles = LoadLanes(d, table + i, lanes);
    const auto cosine = hn::DupEven(angles), sine = hn::Mul(hn::DupOdd(angles), sign);
    for (int64_t h = 0; h < 2 * heads; ++h) {
      T* at = row + h * head_size + i;
      const auto v = LoadLanes(d, at, lanes);
      const auto rotated = hn::MulAdd(hn::Reverse2(d, v), sine, hn::Mul(v, cosine));
      StoreLanes(d, rotated, at, lanes);
    }
  });
}
#endif

// Rows [begin, end) of qkv; a sequence has `time` rows.
void RotateRows(const Tensor& table, int64_t heads, float direction, int64_t time,
                const Tensor& qkv, int64_t begin, int64_t end) {
  const int64_t head_size = table.cols(), cols = qkv.cols();
  for (int64_t n = begin; n < end; ++n) {
    const float* angles = table.f32() + n % time * head_size;
    if (qkv.dtype() == DType::kF32) {
      RotateRow(angles, heads, head_size, direction, qkv.f32() + n * cols);
    } else {
      RotateRow(angles, heads, head_size, direction, qkv.As<bf16>() + n * cols);
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
