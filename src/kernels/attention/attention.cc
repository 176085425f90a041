#include "kernels/attention/attention.h"

#include <cmath>

#include "base/cpu.h"
#include "base/parallel.h"
#include "kernels/attention/attention_head.h"

namespace denseformer {
namespace {

bool HasTiles() { return GetCpuFeatures().Has(CpuFeature::kAvx512Bf16); }

struct Sizes {
  int64_t batch, length, width, heads, head_size;
};

Sizes CheckedSizes(const Tensor& qkv, int64_t heads) {
  const Shape& shape = qkv.shape();
  DF_CHECK_MSG(shape.rank() == 3 && heads > 0 && shape[2] % (3 * heads) == 0,
               "qkv is {}, with {} heads", shape.ToString(), heads);
  return {shape[0], shape[1], shape[2] / 3, heads, shape[2] / (3 * heads)};
}

void CheckSame(const Tensor& tensor, DType dtype, int64_t count) {
  DF_CHECK_MSG(tensor.dtype() == dtype && tensor.count() == count, "{} {}, expected {} x {}",
               DTypeName(tensor.dtype()), tensor.shape().ToString(), count, DTypeName(dtype));
}

// Calls run(head, b, h) for every head of every sequence. All of them take the same time.
template <class E, class Run>
void ForEachHead(const Tensor& qkv, const Sizes& sizes, const Dropout& dropout, Run&& run) {
  const E* const data = qkv.As<E>();
  ParallelFor(sizes.batch * sizes.heads, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t n = begin; n < end; ++n) {
      const int64_t b = n / sizes.heads, h = n % sizes.heads;
      const E* const q = data + b * sizes.length * 3 * sizes.width + h * sizes.head_size;
      run(AttentionHead<E>{.q = q,
                           .k = q + sizes.width,
                           .v = q + 2 * sizes.width,
                           .stride = 3 * sizes.width,
                           .out_stride = sizes.width,
                           .length = sizes.length,
                           .head_size = sizes.head_size,
                           .dropout = dropout,
                           .dropout_index = static_cast<uint64_t>(n * sizes.length * sizes.length),
                           .more = n + 1 < end && h + 1 < sizes.heads},
          b, h);
    }
  });
}

void HeadBackward(const AttentionHead<float>& head,
                  const AttentionHeadGradients<float>& gradients) {
  AttentionHeadBackward(head, gradients);
}
void HeadBackward(const AttentionHead<bf16>& head, const AttentionHeadGradients<bf16>& gradients) {
  if (HasTiles() && AttentionHeadBackwardTiles(head, gradients)) return;
  AttentionHeadBackward(head, gradients);
}

template <class E>
void Forward(const Tensor& qkv, const Sizes& sizes, const Dropout& dropout, const Tensor& out,
             const Tensor& lse) {
  ForEachHead<E>(qkv, sizes, dropout, [&](const AttentionHead<E>& head, int64_t b, int64_t h) {
    RunAttentionHead(head, out.As<E>() + b * sizes.length * sizes.width + h * sizes.head_size,
                     lse.empty() ? nullptr : lse.f32() + (b * sizes.heads + h) * sizes.length);
  });
}

template <class E>
void Backward(const Tensor& qkv, const Tensor& out, const Tensor& lse, const Tensor& dout,
              const Sizes& sizes, const Dropout& dropout, const Tensor& dqkv) {
  ForEachHead<E>(qkv, sizes, dropout, [&](const AttentionHead<E>& head, int64_t b, int64_t h) {
    const int64_t offset = b * sizes.length * sizes.width + h * sizes.head_size;
    E* const dq = dqkv.As<E>() + b * sizes.length * 3 * sizes.width + h * sizes.head_size;
    HeadBackward(head, {.out = out.As<E>() + offset,
                        .dout = dout.As<E>() + offset,
                        .lse = lse.f32() + (b * sizes.heads + h) * sizes.length,
                        .dq = dq,
                        .dk = dq + sizes.width,
                        .dv = dq + 2 * sizes.width});
  });
}

}  // namespace

void RunAttentionHead(const AttentionHead<float>& head, float* out, float* lse) {
  AttentionHeadForward(head, out, lse);
}

void RunAttentionHead(const AttentionHead<bf16>& head, bf16* out, float* lse) {
  if (HasTiles() && AttentionHeadForwardTiles(head, out, lse)) return;
  AttentionHeadForward(head, out, lse);
}

void AttentionForward(const Tensor& qkv, int64_t heads, const Dropout& dropout, const Tensor& out,
                      const Tensor& lse) {
  const Sizes sizes = CheckedSizes(qkv, heads);
  CheckSame(out, qkv.dtype(), sizes.batch * sizes.length * sizes.width);
  if (!lse.empty()) CheckSame(lse, DType::kF32, sizes.batch * heads * sizes.length);
  if (qkv.dtype() == DType::kF32) {
    Forward<float>(qkv, sizes, dropout, out, lse);
  } else {
    Forward<bf16>(qkv, sizes, dropout, out, lse);
  }
}

void AttentionBackward(const Tensor& qkv, const Tensor& out, const Tensor& lse, const Tensor& dout,
                       int64_t heads, const Dropout& dropout, const Tensor& dqkv) {
  const Sizes sizes = CheckedSizes(qkv, heads);
  CheckSame(out, qkv.dtype(), sizes.batch * sizes.length * sizes.width);
  CheckSame(dout, qkv.dtype(), out.count());
  CheckSame(lse, DType::kF32, sizes.batch * heads * sizes.length);
  CheckSame(dqkv, qkv.dtype(), qkv.count());
  if (qkv.dtype() == DType::kF32) {
    Backward<float>(qkv, out, lse, dout, sizes, dropout, dqkv);
  } else {
    Backward<bf16>(qkv, out, lse, dout, sizes, dropout, dqkv);
  }
}

}  // namespace denseformer
