#include "model/qkv.h"

#include <cstring>

#include "base/parallel.h"
#include "kernels/convert.h"
#include "kernels/layernorm.h"
#include "model/weight_backward.h"

namespace denseformer {
namespace {

// Columns [begin, begin + part.cols()) of the rows of `whole`, to or from a contiguous matrix.
enum class Direction { kGather, kScatter };
void CopyColumns(const Tensor& whole, int64_t begin, const Tensor& part, Direction direction) {
  const size_t element = SizeOf(whole.dtype());
  const size_t bytes = static_cast<size_t>(part.cols()) * element;
  const size_t stride = static_cast<size_t>(whole.cols()) * element;
  char* inside = static_cast<char*>(whole.raw()) + static_cast<size_t>(begin) * element;
  char* apart = static_cast<char*>(part.raw());
  ParallelFor(part.rows(), /*grain=*/64, [&](int64_t first, int64_t last, int) {
    for (size_t n = static_cast<size_t>(first); n < static_cast<size_t>(last); ++n) {
      if (direction == Direction::kGather) {
        std::memcpy(apart + n * bytes, inside + n * stride, bytes);
      } else {
        std::memcpy(inside + n * stride, apart + n * bytes, bytes);
      }
    }
  });
}

Tensor Slice(const Tensor& vector, int64_t begin, int64_t count) {
  return vector.empty() ? Tensor() : Tensor(vector.f32() + begin, {count});
}

}  // namespace

StreamNorms BlockNorms(const ModelTensors& tensors, int i, Activations& a) {
  const BlockTensors& w = tensors.blocks[i - 1];
  BlockActivations& b = a.block(i);
  StreamNorms norms;
  const int streams = a.streams(i - 1);
  norms.Add({streams == 4 ? 1 : 0, w.ln_1_weight, w.ln_1_bias, b.ln_1, b.ln_1_mean, b.ln_1_rstd});
  if (streams == 4) {
    norms.Add({2, w.ln_k_weight, w.ln_k_bias, b.ln_k, b.ln_k_mean, b.ln_k_rstd});
  }
  if (streams > 1) {
    norms.Add({streams - 1, w.ln_v_weight, w.ln_v_bias, b.ln_v, b.ln_v_mean, b.ln_v_rstd});
  }
  return norms;
}

void QkvForward(const Model& model, int i, Activations& a) {
  const Tensor& bias = model.tensors().blocks[i - 1].qkv_bias;
  const PackedBlock& packed = model.packed(i);
  const Tensor& qkv = a.block(i).qkv;
  if (packed.qkv_parts.size() == 1) {
    LinearForward(a.block(i).ln_1, packed.qkv(), bias, qkv);
    return;
  }
  const StreamNorms norms = BlockNorms(model.tensors(), i, a);
  int64_t column = 0;
  for (size_t p = 0; p < norms.size(); ++p) {
    const PackedWeight& weight = *packed.qkv_parts[p];
    const Tensor part(a.qkv_part.raw(), qkv.dtype(), {a.rows(), weight.out()});
    LinearForward(norms[p].out, weight, Slice(bias, column, weight.out()), part);
    CopyColumns(qkv, column, part, Direction::kScatter);
    column += weight.out();
  }
}

void QkvBackward(const Model& model, int i, Gradients gradients, const Tensor& dy_r,
                 Activations& a) {
  const BlockTensors& dw = model.gradient_tensors().blocks[i - 1];
  const PackedBlock& packed = model.packed(i);
  const StreamNorms norms = BlockNorms(model.tensors(), i, a);
  const StreamNorms dnorms = BlockNorms(model.gradient_tensors(), i, a);
  if (norms[0].stream != 0) Convert(a.dx, dy_r);  // no part reads the residual stream
  int64_t column = 0;
  for (size_t p = 0; p < norms.size(); ++p) {
    const PackedWeight& weight = *packed.qkv_parts[p];
    Tensor part = a.dqkv.Reshape({a.rows(), a.dqkv.cols()});
    if (norms.size() > 1) {
      part = Tensor(a.qkv_part.raw(), a.dqkv.dtype(), {a.rows(), weight.out()});
      CopyColumns(a.dqkv, column, part, Direction::kGather);
    }
    WeightBackward(part, norms[p].out, dw.qkv_weight.Rows(column, weight.out()),
                   Slice(dw.qkv_bias, column, weight.out()), gradients, a);
    LinearBackwardInput(part, weight, a.dnorm);
    const int c = norms[p].stream;
    LayerNormBackward(a.dnorm, a.y(i - 1, c), norms[p].weight, norms[p].mean, norms[p].rstd,
                      {c == 0 ? a.dx : Tensor(), c == 0 ? dy_r : a.dy(i - 1, c), dnorms[p].weight,
                       dnorms[p].bias, a.scratch});
    column += weight.out();
  }
}

}  // namespace denseformer
