// Token embedding: rows of a table, and the sum of gradients into them.
#include "kernels/embedding.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/embedding.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

#include "base/parallel.h"
#include "kernels/simd.h"
#include "kernels/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Columns [begin, end) of all rows.
void AddRows(std::span<const int32_t> tokens, const Tensor& dout, const Tensor& dweight,
             int64_t begin, int64_t end) {
  const hn::ScalableTag<float> d;
  const int64_t cols = dout.cols();
  for (size_t n = 0; n < tokens.size(); ++n) {
    const float* from = dout.f32() + static_cast<int64_t>(n) * cols + begin;
    float* to = dweight.f32() + tokens[n] * cols + begin;
    ForEachVector(d, end - begin, [&](int64_t i, auto lanes) HWY_ATTR {
      const auto sum = hn::Add(LoadLanes(d, to + i, lanes), LoadLanes(d, from + i, lanes));
      StoreLanes(d, sum, to + i, lanes);
    });
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace denseformer {
namespace {

HWY_EXPORT(AddRows);

void CheckTokens(std::span<const int32_t> tokens, int64_t vocabulary) {
  for (int32_t token : tokens) {
    DF_CHECK_MSG(token >= 0 && token < vocabulary, "token {} of {}", token, vocabulary);
  }
}

}  // namespace

void EmbeddingForward(std::span<const int32_t> tokens, const Tensor& weight, const Tensor& out) {
  const int64_t rows = static_cast<int64_t>(tokens.size()), cols = weight.cols();
  DF_CHECK(out.count() == rows * cols);
  CheckTokens(tokens, weight.rows());
  ParallelFor(rows, /*grain=*/16, [&](int64_t begin, int64_t end, int) {
    for (int64_t n = begin; n < end; ++n) {
      std::memcpy(out.f32() + n * cols, weight.f32() + tokens[n] * cols, cols * sizeof(float));
    }
  });
}

// Threads share the columns, not the tokens: each sees all tokens in their order.
void EmbeddingBackward(std::span<const int32_t> tokens, const Tensor& dout, const Tensor& dweight) {
  constexpr int64_t kColumns = 16;  // a cache line
  const int64_t cols = dweight.cols();
  DF_CHECK(dout.count() == static_cast<int64_t>(tokens.size()) * cols);
  CheckTokens(tokens, dweight.rows());
  ParallelFor((cols + kColumns - 1) / kColumns, /*grain=*/4, [&](int64_t begin, int64_t end, int) {
    DF_DYNAMIC_DISPATCH(AddRows)
    (tokens, dout, dweight, begin * kColumns, std::min(end * kColumns, cols));
  });
}

}  // namespace denseformer
#endif  // HWY_ONCE
