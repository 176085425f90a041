// Checks the arguments of GEMMs and hands them to the backend.
#include "kernels/gemm/gemm.h"

#include <algorithm>
#include <span>

#include "kernels/adamw.h"
#include "kernels/gelu.h"
#include "kernels/gemm/backend.h"
#include "kernels/gemm/frozen.h"
#include "kernels/rotary.h"

namespace denseformer {
namespace {

// The result of the GEMM itself is `y`, or where that is empty `epilogue.gelu`.
void Forward(const Tensor& x, const PackedWeight& weight, const GemmEpilogue& epilogue,
             const Tensor& y) {
  const Tensor& result = y.empty() ? epilogue.gelu : y;
  DF_CHECK(x.dtype() == weight.compute() && x.cols() == weight.in());
  DF_CHECK(result.cols() == weight.out() && result.rows() == x.rows());
  DF_CHECK(epilogue.bias.empty() || epilogue.bias.count() == weight.out());
  if (x.rows() > 0) weight.backend_weight().Forward(x, epilogue, y);
}

}  // namespace

void RunEpiloguePasses(const GemmEpilogue& epilogue, const Tensor& y) {
  if (!epilogue.gelu.empty()) GeluForward(y.empty() ? epilogue.gelu : y, epilogue.gelu);
  if (!epilogue.rotary_table.empty()) {
    RotaryForward(epilogue.rotary_table, epilogue.rotary_heads, y);
  }
}

PackedWeight::PackedWeight(const Tensor& master, DType compute)
    : PackedWeight(master, compute, GemmBackendFor(compute)) {}

PackedWeight::PackedWeight(const Tensor& master, DType compute, const GemmBackend& backend)
    : master_(master), compute_(compute) {
  DF_CHECK(master.shape().rank() == 2 && master.dtype() == DType::kF32);
  weight_ = backend.pack(master, compute);
}

PackedWeight::PackedWeight(int64_t out, int64_t in, WeightFormat format, std::byte* memory)
    : master_(nullptr, DType::kF32, {out, in}),
      compute_(ComputeOf(format)),
      weight_(FrozenGemmFor(format).make(out, in, format, memory)) {}

PackedWeight::~PackedWeight() = default;
PackedWeight::PackedWeight(PackedWeight&&) noexcept = default;
PackedWeight& PackedWeight::operator=(PackedWeight&&) noexcept = default;

size_t PackedWeight::CopyBytes(int64_t out, int64_t in, DType compute) {
  return GemmBackendFor(compute).packed_bytes(out, in, compute);
}

size_t PackedWeight::TransposedBytes(int64_t out, int64_t in, DType compute) {
  return GemmBackendFor(compute).transposed_bytes(out, in, compute);
}

size_t PackedWeight::FrozenBytes(int64_t out, int64_t in, WeightFormat format) {
  return FrozenGemmFor(format).bytes(out, in, format);
}

FrozenWeight& PackedWeight::frozen() const {
  FrozenWeight* const weight = dynamic_cast<FrozenWeight*>(weight_.get());
  DF_CHECK(weight != nullptr);
  return *weight;
}

void PackedWeight::PackRows(int64_t first, int64_t count, const float* rows, const float* scales) {
  frozen().Pack(first, count, rows, scales);
}

void PackedWeight::ReadRow(int64_t row, float* to) const { frozen().ReadRow(row, to); }

void PackedWeight::SetNext(const PackedWeight& next) { frozen().set_next(&next.frozen()); }

void PackedWeight::Refresh() {
  weight_->Change([](int64_t, int64_t) {});
}

void PackedWeight::Change(FunctionRef<void(int64_t first, int64_t last)> change) {
  weight_->Change(change);
}

void LinearForward(const Tensor& x, const PackedWeight& weight, const Tensor& bias,
                   const Tensor& y) {
  Forward(x, weight, {.bias = bias}, y);
}

void LinearGeluForward(const Tensor& x, const PackedWeight& weight, const Tensor& bias,
                       const Tensor& fc, const Tensor& gelu) {
  DF_CHECK(gelu.dtype() == weight.compute());
  DF_CHECK(fc.empty() || (fc.dtype() == weight.compute() && fc.count() == gelu.count()));
  Forward(x, weight, {.bias = bias, .gelu = gelu}, fc);
}

void LinearRotaryForward(const Tensor& x, const PackedWeight& weight, const Tensor& bias,
                         const Tensor& table, int64_t heads, const Tensor& qkv) {
  DF_CHECK(qkv.shape().rank() == 3 && qkv.cols() == 3 * heads * table.cols());
  DF_CHECK_MSG(qkv.shape()[1] <= table.rows(), "{} positions, table of {}", qkv.shape()[1],
               table.rows());
  Forward(x, weight, {.bias = bias, .rotary_table = table, .rotary_heads = heads}, qkv);
}

void LinearBackwardInput(const Tensor& dy, const PackedWeight& weight, const Tensor& dx) {
  DF_CHECK(dy.dtype() == weight.compute());
  DF_CHECK(dy.cols() == weight.out() && dx.cols() == weight.in() && dx.rows() == dy.rows());
  if (dy.rows() > 0) weight.backend_weight().BackwardInput(dy, dx);
}

void LinearBackwardWeight(const Tensor& dy, const Tensor& x, const Tensor& dweight, bool add,
                          double* squares) {
  DF_CHECK(x.rows() == dy.rows() && dy.dtype() == x.dtype() && dweight.dtype() == DType::kF32);
  DF_CHECK(dweight.rows() == dy.cols() && dweight.cols() == x.cols());
  if (dy.rows() > 0) {
    GemmBackendFor(dy.dtype()).backward_weight(dy, x, dweight, add, squares);
    return;
  }
  const std::span<float> all(dweight.f32(), static_cast<size_t>(dweight.count()));
  if (!add) std::fill(all.begin(), all.end(), 0.0f);
  if (squares != nullptr) *squares = SumOfSquares(all);
}

}  // namespace denseformer
