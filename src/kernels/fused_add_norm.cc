#include "kernels/fused_add_norm.h"

#include <hwy/cache_control.h>

#include <algorithm>

#include "base/parallel.h"
#include "kernels/convert.h"
#include "kernels/layernorm.h"
#include "kernels/residual.h"
#include "kernels/stream.h"

namespace denseformer {
namespace {

// Elements of a block of rows: small enough that what one part writes the next finds in cache.
constexpr int64_t kBlock = 8192;

// A column of statistics, or nothing.
Tensor Slice(const Tensor& values, int64_t begin, int64_t n) {
  return values.empty() ? Tensor() : Tensor(values.f32() + begin, {n});
}

bool KeptPastCache(const FusedAddNorm& b) {
  return !b.kept.empty() && b.kept.dtype() == DType::kBF16 &&
         StoredPastCache(static_cast<int64_t>(b.kept.bytes()));
}

void RunRows(const FusedAddNorm& b, int64_t begin, int64_t n) {
  const int64_t cols = b.x.cols();
  const Tensor x = b.x.Rows(begin, n);
  if (!b.delta.empty()) {
    Dropout dropout = b.dropout;
    dropout.first += static_cast<uint64_t>(begin * cols);
    ResidualForward(b.stream.Rows(begin, n), b.delta.Rows(begin, n), b.gain, dropout, x);
  }
  if (KeptPastCache(b)) {
    ConvertPast(x.f32(), b.kept.Rows(begin, n).As<bf16>(), n * cols);
  } else if (!b.kept.empty()) {
    Convert(x, b.kept.Rows(begin, n));
  }
  if (b.averager != nullptr) b.averager->RunForward(begin * cols, (begin + n) * cols);
  const FusedNorm& norm = b.norm;
  if (norm.out.empty()) return;
  const Tensor& y = b.averager != nullptr ? b.y : b.x;
  LayerNormForward(y.Rows(begin, n), norm.weight, norm.bias, norm.out.Rows(begin, n),
                   Slice(norm.mean, begin, n), Slice(norm.rstd, begin, n));
}

}  // namespace

void FusedAddNormForward(const FusedAddNorm& b) {
  const int64_t rows = b.x.rows(), cols = b.x.cols();
  if (b.averager != nullptr) b.averager->PrepareForward(b.depth, b.x, b.history, b.y);
  int64_t block = std::max<int64_t>(1, kBlock / std::max<int64_t>(1, cols));
  int64_t blocks = (rows + block - 1) / block;
  if (blocks > 1) {  // as many rows for every thread
    const int64_t threads = NumThreads();
    const int64_t even = (blocks + threads - 1) / threads * threads;
    block = (rows + even - 1) / even;
    blocks = (rows + block - 1) / block;
  }
  ParallelFor(blocks, /*grain=*/1, [&](int64_t begin, int64_t end, int) {
    for (int64_t at = begin; at < end; ++at) {
      RunRows(b, at * block, std::min(block, rows - at * block));
    }
    hwy::FlushStream();
  });
}

}  // namespace denseformer
