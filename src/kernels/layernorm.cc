// LayerNorm over all rows (layernorm_row-inl.h has the equations of one).
#include "kernels/layernorm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/layernorm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "base/parallel.h"
#include "kernels/layernorm_row-inl.h"
#include "kernels/simd.h"
#include "kernels/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <class Out>
void NormRows(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& out,
              const Tensor& mean, const Tensor& rstd, int64_t begin, int64_t end) {
  const int64_t cols = x.cols();
  for (int64_t n = begin; n < end; ++n) {
    LayerNormRow(x.f32() + n * cols, weight.f32(), bias.empty() ? nullptr : bias.f32(), cols,
                 out.As<Out>() + n * cols, mean.empty() ? nullptr : mean.f32() + n,
                 rstd.empty() ? nullptr : rstd.f32() + n);
  }
}

void NormForward(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& out,
                 const Tensor& mean, const Tensor& rstd, int64_t begin, int64_t end) {
  if (out.dtype() == DType::kF32) {
    NormRows<float>(x, weight, bias, out, mean, rstd, begin, end);
  } else {
    NormRows<bf16>(x, weight, bias, out, mean, rstd, begin, end);
  }
}

template <class Out>
void GradRows(const Tensor& dout, const Tensor& x, const Tensor& weight, const Tensor& mean,
              const Tensor& rstd, const LayerNormGradients& grads, int64_t partition, int64_t begin,
              int64_t end) {
  const int64_t cols = x.cols();
  float* dweight = grads.scratch.f32() + partition * 2 * cols;
  float* dbias = grads.dbias.empty() ? nullptr : dweight + cols;
  std::fill_n(dweight, (dbias != nullptr ? 2 : 1) * cols, 0.0f);
  for (int64_t n = begin; n < end; ++n) {
    const int64_t at = n * cols;
    LayerNormGradRow(dout.As<Out>() + at, x.f32() + at, weight.f32(), mean.f32()[n], rstd.f32()[n],
                     cols, grads.dresidual.empty() ? nullptr : grads.dresidual.f32() + at,
                     grads.dx.f32() + at, dweight, dbias);
  }
}

void NormBackward(const Tensor& dout, const Tensor& x, const Tensor& weight, const Tensor& mean,
                  const Tensor& rstd, const LayerNormGradients& grads, int64_t partition,
                  int64_t begin, int64_t end) {
  if (dout.dtype() == DType::kF32) {
    GradRows<float>(dout, x, weight, mean, rstd, grads, partition, begin, end);
  } else {
    GradRows<bf16>(dout, x, weight, mean, rstd, grads, partition, begin, end);
  }
}

// to[i] += the sum of the partitions' values, for i in [begin, end).
void AddPartitions(const float* scratch, int64_t stride, int64_t partitions, int64_t begin,
                   int64_t end, float* HWY_RESTRICT to) {
  const hn::ScalableTag<float> d;
  ForEachVector(d, end - begin, [&](int64_t i, auto lanes) HWY_ATTR {
    auto sum = LoadLanes(d, scratch + begin + i, lanes);
    for (int64_t p = 1; p < partitions; ++p) {
      sum = hn::Add(sum, LoadLanes(d, scratch + p * stride + begin + i, lanes));
    }
    float* at = to + begin + i;
    StoreLanes(d, hn::Add(LoadLanes(d, at, lanes), sum), at, lanes);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace denseformer {
namespace {

HWY_EXPORT(NormForward);
HWY_EXPORT(NormBackward);
HWY_EXPORT(AddPartitions);

// A partition costs a pass over its sums; it should have a few rows of work for that.
constexpr int64_t kRowsOfPartition = 8;

}  // namespace

void LayerNormForward(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& out,
                      const Tensor& mean, const Tensor& rstd) {
  DF_CHECK(out.count() == x.count() && weight.count() == x.cols());
  DF_CHECK(bias.empty() || bias.count() == x.cols());
  DF_CHECK(mean.empty() || mean.count() == x.rows());
  DF_CHECK(rstd.empty() || rstd.count() == x.rows());
  ParallelFor(x.rows(), /*grain=*/8, [&](int64_t begin, int64_t end, int) {
    DF_DYNAMIC_DISPATCH(NormForward)(x, weight, bias, out, mean, rstd, begin, end);
  });
}

int64_t LayerNormScratch(int64_t cols) { return kMostLayerNormPartitions * 2 * cols; }

int64_t LayerNormPartitions(int64_t rows) {
  return std::clamp<int64_t>(rows / kRowsOfPartition, int64_t{1}, kMostLayerNormPartitions);
}

void AddLayerNormPartitions(const float* scratch, int64_t partitions, const Tensor& dweight,
                            const Tensor& dbias) {
  const int64_t cols = dweight.count();
  ParallelFor(cols, /*grain=*/256, [&](int64_t begin, int64_t end, int) {
    DF_DYNAMIC_DISPATCH(AddPartitions)
    (scratch, 2 * cols, partitions, begin, end, dweight.f32());
    if (dbias.empty()) return;
    DF_DYNAMIC_DISPATCH(AddPartitions)
    (scratch + cols, 2 * cols, partitions, begin, end, dbias.f32());
  });
}

void LayerNormBackward(const Tensor& dout, const Tensor& x, const Tensor& weight,
                       const Tensor& mean, const Tensor& rstd,
                       const LayerNormGradients& gradients) {
  const int64_t rows = x.rows(), cols = x.cols();
  DF_CHECK(dout.count() == x.count() && weight.count() == cols);
  DF_CHECK(mean.count() == rows && rstd.count() == rows);
  DF_CHECK(gradients.dx.count() == x.count() && gradients.dweight.count() == cols);
  DF_CHECK(gradients.dresidual.empty() || gradients.dresidual.count() == x.count());
  DF_CHECK(gradients.dbias.empty() || gradients.dbias.count() == cols);
  DF_CHECK(gradients.scratch.count() >= LayerNormScratch(cols));
  if (rows == 0) return;
  const int64_t partitions = LayerNormPartitions(rows);
  ParallelFor(partitions, /*grain=*/1, [&](int64_t begin, int64_t end, int) {
    for (int64_t p = begin; p < end; ++p) {
      DF_DYNAMIC_DISPATCH(NormBackward)
      (dout, x, weight, mean, rstd, gradients, p, rows * p / partitions,
       rows * (p + 1) / partitions);
    }
  });
  AddLayerNormPartitions(gradients.scratch.f32(), partitions, gradients.dweight, gradients.dbias);
}

}  // namespace denseformer
#endif  // HWY_ONCE
