// Chooses who computes a matrix product: bf16 on AMX tiles is ours (gemm_amx.cc), everything else
// oneDNN's.
#include "kernels/gemm/gemm.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/parallel.h"
#include "kernels/adamw.h"
#include "kernels/gelu.h"
#include "kernels/gemm/gemm_amx.h"
#include "kernels/gemm/gemm_onednn.h"
#include "kernels/rotary.h"
#include "tensor/storage.h"

namespace denseformer {
namespace {

bool UseAmx(DType compute) { return compute == DType::kBF16 && HasAmxGemm(); }

size_t AmxBytes(int64_t out, int64_t in) {
  return static_cast<size_t>(AmxPackedSize(out, in)) * sizeof(bf16);
}

}  // namespace

struct PackedWeight::Impl {
  Tensor master;
  DType compute;
  Storage packed;  // AMX: the right operand of x W^T
  std::optional<OneDnnWeight> onednn;
};

namespace {

// x W^T + bias by our own kernel to what `out` names.
void AmxForward(const Tensor& x, const PackedWeight& weight, const Tensor& bias, AmxOutput out) {
  const Tensor& y = out.y.empty() ? out.gelu : out.y;
  DF_CHECK(x.dtype() == weight.compute() && x.cols() == weight.in() && x.rows() == y.rows());
  DF_CHECK(y.cols() == weight.out());
  if (x.rows() == 0) return;
  out.n = weight.out();
  out.bias = bias.empty() ? nullptr : bias.f32();
  AmxMultiply(x, static_cast<const bf16*>(weight.impl().packed.data()), out);
}

}  // namespace

PackedWeight::PackedWeight(const Tensor& master, DType compute) : impl_(std::make_unique<Impl>()) {
  DF_CHECK(master.shape().rank() == 2 && master.dtype() == DType::kF32);
  impl_->master = master;
  impl_->compute = compute;
  if (UseAmx(compute)) {
    impl_->packed = Storage(AmxBytes(out(), in()));
  } else {
    impl_->onednn.emplace(master, compute);
  }
}

PackedWeight::~PackedWeight() = default;
PackedWeight::PackedWeight(PackedWeight&&) noexcept = default;
PackedWeight& PackedWeight::operator=(PackedWeight&&) noexcept = default;

int64_t PackedWeight::out() const { return impl_->master.shape()[0]; }
int64_t PackedWeight::in() const { return impl_->master.shape()[1]; }
DType PackedWeight::compute() const { return impl_->compute; }

size_t PackedWeight::CopyBytes(int64_t out, int64_t in, DType compute) {
  return UseAmx(compute) ? AmxBytes(out, in) : OneDnnWeight::CopyBytes(out, in, compute);
}

size_t PackedWeight::TurnedBytes(int64_t out, int64_t in, DType compute) {
  return UseAmx(compute) ? AmxBytes(in, out) : OneDnnWeight::TurnedBytes(out, in, compute);
}

void PackedWeight::Refresh() {
  if (impl_->onednn) {
    impl_->onednn->Refresh();
    return;
  }
  Change([](int64_t, int64_t) {});
}

void PackedWeight::Change(FunctionRef<void(int64_t first, int64_t last)> change) {
  if (impl_->onednn) {
    ParallelFor(out(), /*grain=*/1, [&](int64_t begin, int64_t end, int) { change(begin, end); });
    impl_->onednn->Refresh();
    return;
  }
  bf16* const packed = static_cast<bf16*>(impl_->packed.data());
  ParallelFor((out() + kAmxBlock - 1) / kAmxBlock, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t band = begin; band < end; ++band) {
      change(band * kAmxBlock, std::min(out(), (band + 1) * kAmxBlock));
      AmxPackBand(impl_->master, band, packed);
    }
  });
}

void LinearForward(const Tensor& x, const PackedWeight& weight, const Tensor& bias,
                   const Tensor& y) {
  const PackedWeight::Impl& w = weight.impl();
  DF_CHECK(x.dtype() == w.compute && x.cols() == weight.in() && y.cols() == weight.out());
  DF_CHECK(y.rows() == x.rows());
  if (!w.onednn) {
    AmxForward(x, weight, bias, {.y = y});
  } else if (x.rows() > 0) {
    OneDnnForward(x, *w.onednn, bias, y);
  }
}

void LinearGeluForward(const Tensor& x, const PackedWeight& weight, const Tensor& bias,
                       const Tensor& fc, const Tensor& gelu) {
  const PackedWeight::Impl& w = weight.impl();
  DF_CHECK(gelu.dtype() == w.compute && (fc.empty() || fc.dtype() == w.compute));
  if (w.onednn) {
    LinearForward(x, weight, bias, fc.empty() ? gelu : fc);
    GeluForward(fc.empty() ? gelu : fc, gelu);
    return;
  }
  AmxForward(x, weight, bias, {.y = fc, .gelu = gelu});
}

void LinearRotaryForward(const Tensor& x, const PackedWeight& weight, const Tensor& bias,
                         const Tensor& table, int64_t heads, const Tensor& qkv) {
  const PackedWeight::Impl& w = weight.impl();
  const int64_t head_size = table.cols();
  DF_CHECK(qkv.shape().rank() == 3 && qkv.cols() == 3 * heads * head_size);
  if (w.onednn || head_size % kAmxBlock != 0) {
    LinearForward(x, weight, bias, qkv);
    RotaryForward(table, heads, qkv);
    return;
  }
  const int64_t time = qkv.shape()[1];
  DF_CHECK_MSG(time <= table.rows(), "{} positions, table of {}", time, table.rows());
  AmxForward(x, weight, bias,
             {.y = qkv, .turn = {table.f32(), head_size, time, 2 * heads * head_size}});
}

void LinearBackwardInput(const Tensor& dy, const PackedWeight& weight, const Tensor& dx) {
  const PackedWeight::Impl& w = weight.impl();
  DF_CHECK(dy.dtype() == w.compute);
  DF_CHECK(dy.cols() == weight.out() && dx.cols() == weight.in() && dx.rows() == dy.rows());
  if (dy.rows() == 0) return;
  if (w.onednn) {
    OneDnnBackwardInput(dy, *w.onednn, dx);
  } else {
    AmxMultiplyTurned(dy, static_cast<const bf16*>(w.packed.data()), dx);
  }
}

void LinearBackwardWeight(const Tensor& dy, const Tensor& x, const Tensor& dweight, bool add,
                          double* squares) {
  DF_CHECK(x.rows() == dy.rows() && dy.dtype() == x.dtype() && dweight.dtype() == DType::kF32);
  DF_CHECK(dweight.rows() == dy.cols() && dweight.cols() == x.cols());
  const std::span<float> all(dweight.f32(), static_cast<size_t>(dweight.count()));
  if (dy.rows() > 0 && UseAmx(dy.dtype())) {
    AmxMultiplyTransposed(dy, x, dweight, add, squares);
    return;
  }
  if (dy.rows() > 0) {
    OneDnnBackwardWeight(dy, x, dweight, add);
  } else if (!add) {
    std::fill(all.begin(), all.end(), 0.0f);
  }
  if (squares != nullptr) *squares = SumOfSquares(all);
}

std::string GemmDescription() {
  return HasAmxGemm() ? "bf16: own kernels on AMX; fp32: " + OneDnnDescription()
                      : OneDnnDescription();
}

}  // namespace denseformer
