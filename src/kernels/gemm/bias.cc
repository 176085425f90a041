// Gradient of a bias: the sum of the rows.
#include "base/parallel.h"
#include "kernels/gemm/gemm.h"

namespace denseformer {
namespace {

// Each thread owns columns, so every column is summed in the order of the rows.
template <class T>
void SumRows(const Tensor& dy, const Tensor& dbias) {
  const int64_t rows = dy.rows(), cols = dy.cols();
  const T* from = dy.As<const T>();
  float* to = dbias.f32();
  constexpr int64_t kTile = 64;
  ParallelFor((cols + kTile - 1) / kTile, 1, [&](int64_t first, int64_t last, int) {
    for (int64_t tile = first; tile < last; ++tile) {
      const int64_t begin = tile * kTile, width = std::min(kTile, cols - begin);
      float sum[kTile] = {};
      for (int64_t n = 0; n < rows; ++n) {
        const T* row = from + n * cols + begin;
        for (int64_t c = 0; c < width; ++c) sum[c] += static_cast<float>(row[c]);
      }
      for (int64_t c = 0; c < width; ++c) to[begin + c] += sum[c];
    }
  });
}

}  // namespace

void LinearBackwardBias(const Tensor& dy, const Tensor& dbias) {
  DF_CHECK(dbias.count() == dy.cols());
  if (dy.dtype() == DType::kF32) {
    SumRows<float>(dy, dbias);
  } else {
    SumRows<bf16>(dy, dbias);
  }
}

}  // namespace denseformer
