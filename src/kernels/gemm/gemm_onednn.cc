// The GEMM backend on oneDNN.
//
// Forward and input gradients use `matmul` with weights in oneDNN's packed layout (bf16) or in
// place (fp32). Weight gradients use the `gemm` implementation, maybe with a sum into the fp32
// gradient: the faster one there.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>

#include "base/cpu.h"
#include "base/parallel.h"
#include "kernels/adamw.h"
#include "kernels/convert.h"
#include "kernels/gemm/backend.h"
#include "kernels/gemm/onednn_matmul.h"
#include "tensor/storage.h"

namespace denseformer {
namespace {

using onednn::Gemm;
using onednn::GemmKey;
using onednn::PackedLayout;
using onednn::Repack;
using onednn::RunGemm;
using onednn::Scratch;
using onednn::UseThreads;

// Without AVX-512 oneDNN has no bf16 at all, without AVX512_BF16 it emulates the dot products,
// which takes six times as long as fp32; there GEMMs run in fp32 on converted operands.
bool HasNativeBf16() { return GetCpuFeatures().Has(CpuFeature::kAvx512Bf16); }

GemmKey MakeKey(Gemm gemm, int64_t rows, int64_t out, int64_t in, DType operand, DType result,
                bool bias) {
  return {gemm, rows, out, in, operand, result, bias, UseThreads(NumThreads())};
}

// Without AVX-512 oneDNN splits the sum of an fp32 GEMM over its threads, so that the result
// depends on their number.
bool SplitsSums() { return !GetCpuFeatures().Has(CpuFeature::kAvx512); }

// Parts of `n` columns or rows of a result: as large as can be while a few threads have work, and
// the same whatever their number.
int64_t PartOf(int64_t n) { return std::max<int64_t>(64, (n / 8 + 15) / 16 * 16); }

// Calls compute(first, count) for every part of n, each on one thread.
template <class F>
void ForEachPart(int64_t n, F compute) {
  const int64_t part = PartOf(n);
  ParallelFor((n + part - 1) / part, 1, [&](int64_t begin, int64_t end, int) {
    UseThreads(1);
    for (int64_t p = begin; p < end; ++p) compute(p * part, std::min(part, n - p * part));
  });
}

// y = x W^T (+ bias) or dx = dy W in fp32; weights [out, in] as in the master.
void RunF32(Gemm gemm, int64_t rows, int64_t out, int64_t in, const float* source,
            const float* weights, const float* bias, float* destination) {
  if (!SplitsSums()) {
    RunGemm(MakeKey(gemm, rows, out, in, DType::kF32, DType::kF32, bias != nullptr), source,
            weights, bias, destination);
    return;
  }
  const bool forward = gemm == Gemm::kForward;
  ForEachPart(forward ? out : in, [&](int64_t first, int64_t count) {
    const GemmKey key{gemm,          rows, out,  in, DType::kF32, DType::kF32, bias != nullptr,
                      /*threads=*/1, 0,    count};
    RunGemm(key, source, weights + (forward ? first * in : first),
            bias == nullptr ? nullptr : bias + first, destination + first);
  });
}

// An fp32 copy of `from` in scratch memory number `slot`, for CPUs without bf16 GEMMs.
Tensor AsF32(const Tensor& from, int slot) {
  if (from.dtype() == DType::kF32) return from;
  thread_local Storage storage[2];
  const size_t bytes = static_cast<size_t>(from.count()) * sizeof(float);
  const Tensor copy(static_cast<float*>(Scratch(storage[slot], bytes)), from.shape());
  Convert(from, copy);
  return copy;
}

// The destination of a GEMM that runs in fp32 for a bf16 result.
Tensor F32Destination(const Tensor& to) {
  if (to.dtype() == DType::kF32) return to;
  thread_local Storage storage;
  const size_t bytes = static_cast<size_t>(to.count()) * sizeof(float);
  return Tensor(static_cast<float*>(Scratch(storage, bytes)), to.shape());
}

void Deliver(const Tensor& result, const Tensor& to) {
  if (result.raw() != to.raw()) Convert(result, to);
}

size_t PackedBytes(int64_t out, int64_t in, DType compute) {
  if (compute == DType::kF32) return 0;
  const size_t count = static_cast<size_t>(out) * static_cast<size_t>(in);
  if (!HasNativeBf16()) return count * sizeof(float);
  return PackedLayout(in, out).get_size();
}

size_t TransposedBytes(int64_t out, int64_t in, DType compute) {
  return compute == DType::kBF16 && HasNativeBf16() ? PackedLayout(out, in).get_size() : 0;
}

// bf16 weights in oneDNN's packed layout.
class NativeBf16Weight : public GemmWeight {
 public:
  explicit NativeBf16Weight(const Tensor& master)
      : master_(master),
        copy_(PackedBytes(out(), in(), DType::kBF16)),
        transposed_bytes_(TransposedBytes(out(), in(), DType::kBF16)) {
    to_copy_ = Repack(onednn::TransposedF32(in(), out()), master.raw(), PackedLayout(in(), out()));
    // From the copy, not from the master: half the bytes, and passes do not need the master.
    to_transposed_ = Repack(PackedLayout(in(), out()).permute_axes({1, 0}), copy_.data(),
                            PackedLayout(out(), in()));
  }

  void Change(FunctionRef<void(int64_t first, int64_t last)> change) override {
    ParallelFor(out(), /*grain=*/1, [&](int64_t begin, int64_t end, int) { change(begin, end); });
    to_copy_.Run(copy_.data());
  }

  void Forward(const Tensor& x, const GemmEpilogue& epilogue, const Tensor& y) const override {
    const Tensor& to = y.empty() ? epilogue.gelu : y;
    const float* bias = epilogue.bias.empty() ? nullptr : epilogue.bias.f32();
    RunGemm(
        MakeKey(Gemm::kForward, x.rows(), out(), in(), DType::kBF16, to.dtype(), bias != nullptr),
        x.raw(), copy_.data(), bias, to.raw());
    RunEpiloguePasses(epilogue, y);
  }

  void BackwardInput(const Tensor& dy, const Tensor& dx) const override {
    thread_local Storage storage;
    void* const transposed = Scratch(storage, transposed_bytes_);
    to_transposed_.Run(transposed);
    // After the copy, which may set another number of threads.
    RunGemm(MakeKey(Gemm::kBackwardInput, dy.rows(), out(), in(), DType::kBF16, dx.dtype(), false),
            dy.raw(), transposed, nullptr, dx.raw());
  }

 private:
  int64_t out() const { return master_.shape()[0]; }
  int64_t in() const { return master_.shape()[1]; }

  Tensor master_;
  Storage copy_;  // packed for x W^T
  size_t transposed_bytes_;
  Repack to_copy_, to_transposed_;
};

// fp32, or bf16 where oneDNN computes it in fp32.
class F32Weight : public GemmWeight {
 public:
  F32Weight(const Tensor& master, DType compute)
      : master_(master), rounded_(PackedBytes(master.rows(), master.cols(), compute)) {}

  void Change(FunctionRef<void(int64_t first, int64_t last)> change) override {
    ParallelFor(out(), /*grain=*/1, [&](int64_t begin, int64_t end, int) { change(begin, end); });
    if (rounded_.bytes() == 0) return;
    const float* from = master_.f32();
    float* to = static_cast<float*>(rounded_.data());
    ParallelFor(master_.count(), 1 << 14, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) to[i] = static_cast<float>(bf16(from[i]));
    });
  }

  void Forward(const Tensor& x, const GemmEpilogue& epilogue, const Tensor& y) const override {
    const Tensor& to = y.empty() ? epilogue.gelu : y;
    const Tensor result = F32Destination(to);
    RunF32(Gemm::kForward, x.rows(), out(), in(), AsF32(x, 0).f32(), weights(),
           epilogue.bias.empty() ? nullptr : epilogue.bias.f32(), result.f32());
    Deliver(result, to);
    RunEpiloguePasses(epilogue, y);
  }

  void BackwardInput(const Tensor& dy, const Tensor& dx) const override {
    const Tensor result = F32Destination(dx);
    RunF32(Gemm::kBackwardInput, dy.rows(), out(), in(), AsF32(dy, 0).f32(), weights(), nullptr,
           result.f32());
    Deliver(result, dx);
  }

 private:
  int64_t out() const { return master_.shape()[0]; }
  int64_t in() const { return master_.shape()[1]; }
  const float* weights() const {
    return rounded_.bytes() > 0 ? static_cast<const float*>(rounded_.data()) : master_.f32();
  }

  Tensor master_;
  Storage rounded_;  // bf16: the master's values rounded to bf16, as fp32
};

std::unique_ptr<GemmWeight> Pack(const Tensor& master, DType compute) {
  if (compute == DType::kBF16 && HasNativeBf16()) return std::make_unique<NativeBf16Weight>(master);
  return std::make_unique<F32Weight>(master, compute);
}

void BackwardWeight(const Tensor& dy, const Tensor& x, const Tensor& dweight, bool add,
                    double* squares) {
  const int64_t out = dy.cols(), in = x.cols();
  const bool convert = dy.dtype() == DType::kBF16 && !HasNativeBf16();
  const Tensor left = convert ? AsF32(dy, 0) : dy, right = convert ? AsF32(x, 1) : x;
  const int64_t size = static_cast<int64_t>(SizeOf(left.dtype()));
  ForEachPart(out, [&](int64_t first, int64_t count) {
    const GemmKey key{Gemm::kBackwardWeight, dy.rows(), count, in, left.dtype(), DType::kF32, false,
                      /*threads=*/1,         out,
                      /*columns=*/0,         add};
    RunGemm(key, static_cast<const char*>(left.raw()) + first * size, right.raw(), nullptr,
            dweight.f32() + first * in);
  });
  if (squares != nullptr) {
    *squares = SumOfSquares({dweight.f32(), static_cast<size_t>(dweight.count())});
  }
}

std::string Description() {
  onednn::Engine();
  const dnnl_version_t* version = dnnl_version();
  CpuFeatures cpu = GetCpuFeatures();
  if (!DescribesAmxTiles()) {
    cpu = cpu & CpuFeatures{CpuFeature::kAvx2, CpuFeature::kAvx512, CpuFeature::kAvx512Vnni,
                            CpuFeature::kAvx512Bf16};
  }
  return fmt::format("oneDNN {}.{}.{}, {}", version->major, version->minor, version->patch,
                     CpuName(cpu));
}

}  // namespace

constinit extern const GemmBackend kOneDnnGemm = {
    .name = "onednn",
    .requirements = "nothing",
    .available = [](DType, CpuFeatures) { return true; },
    .description = Description,
    .packed_bytes = PackedBytes,
    .transposed_bytes = TransposedBytes,
    .pack = Pack,
    .backward_weight = BackwardWeight,
};

}  // namespace denseformer
