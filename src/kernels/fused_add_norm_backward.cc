// Per row, the steps of layernorm.cc and residual.cc while it is in the first cache.
#include "kernels/fused_add_norm_backward.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fused_add_norm_backward.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "base/parallel.h"
#include "kernels/layernorm.h"
#include "kernels/layernorm_row-inl.h"
#include "kernels/residual_row-inl.h"
#include "kernels/simd.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {

float GainOf(const Tensor& gain) { return gain.empty() ? 1.0f : gain.f32()[0]; }

// Rows [begin, end) of a partition; its sums go to `sums` [2 * D], that of the gain to `dgain`.
template <class Delta, class Out>
void BackwardRows(const FusedAddNormGradients& a, int64_t begin, int64_t end, float* sums,
                  float* dgain) {
  const int64_t cols = a.y.cols();
  const float gain = GainOf(a.gain);
  float* dbias = a.dbias.empty() ? nullptr : sums + cols;
  std::fill_n(sums, (dbias != nullptr ? 2 : 1) * cols, 0.0f);
  float* dx = a.dx.f32();
  double dot = 0;
  for (int64_t n = begin; n < end; ++n) {
    const int64_t at = n * cols;
    LayerNormGradRow(a.dout.As<Out>() + at, a.y.f32() + at, a.weight.f32(), a.mean.f32()[n],
                     a.rstd.f32()[n], cols, a.dresidual.empty() ? nullptr : a.dresidual.f32() + at,
                     dx + at, sums, dbias);
    if (!a.dgain.empty()) dot += DotElements(dx, a.x.f32(), at, at + cols);
    ResidualGradElements(dx, gain, a.dropout, a.gain.empty() ? nullptr : dx, a.ddelta.As<Delta>(),
                         at, at + cols);
  }
  *dgain = static_cast<float>(dot);
}

void BackwardRange(const FusedAddNormGradients& a, int64_t begin, int64_t end, float* sums,
                   float* dgain) {
  const bool f32_delta = a.ddelta.dtype() == DType::kF32;
  if (a.dout.dtype() == DType::kF32) {
    (f32_delta ? BackwardRows<float, float> : BackwardRows<bf16, float>)(a, begin, end, sums,
                                                                         dgain);
  } else {
    (f32_delta ? BackwardRows<float, bf16> : BackwardRows<bf16, bf16>)(a, begin, end, sums, dgain);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace denseformer {
namespace {

HWY_EXPORT(BackwardRange);

}  // namespace

int64_t FusedAddNormScratch(int64_t cols) {
  return LayerNormScratch(cols) + kMostLayerNormPartitions;
}

void FusedAddNormBackward(const FusedAddNormGradients& a) {
  const int64_t rows = a.y.rows(), cols = a.y.cols();
  DF_CHECK(a.dout.count() == a.y.count() && a.weight.count() == cols);
  DF_CHECK(a.mean.count() == rows && a.rstd.count() == rows);
  DF_CHECK(a.dresidual.empty() || a.dresidual.count() == a.y.count());
  DF_CHECK(a.dweight.count() == cols && (a.dbias.empty() || a.dbias.count() == cols));
  DF_CHECK(a.dx.count() == a.y.count() && a.ddelta.count() == a.y.count());
  DF_CHECK(a.gain.empty() || a.gain.count() == 1);
  DF_CHECK(a.dgain.empty() || a.x.count() == a.y.count());
  DF_CHECK(a.scratch.count() >= FusedAddNormScratch(cols));
  if (rows == 0) return;
  const int64_t partitions = LayerNormPartitions(rows);
  float* sums = a.scratch.f32();
  float* dgain = sums + LayerNormScratch(cols);
  ParallelFor(partitions, /*grain=*/1, [&](int64_t begin, int64_t end, int) {
    for (int64_t p = begin; p < end; ++p) {
      DF_DYNAMIC_DISPATCH(BackwardRange)
      (a, rows * p / partitions, rows * (p + 1) / partitions, sums + p * 2 * cols, dgain + p);
    }
  });
  AddLayerNormPartitions(sums, partitions, a.dweight, a.dbias);
  if (a.dgain.empty()) return;
  double sum = 0;
  for (int64_t p = 0; p < partitions; ++p) sum += dgain[p];
  a.dgain.f32()[0] += static_cast<float>(sum);
}

}  // namespace denseformer
#endif  // HWY_ONCE
