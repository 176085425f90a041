// GEMMs of linear layers. Backends (backend.h) compute them: the best one that the CPU can run, or
// the one that DENSEFORMER_GEMM names.
//
// A linear layer is y = x W^T (+ bias), W [out, in]. Compute is fp32 or bf16 with fp32 sums; the
// master weights are always fp32.
#ifndef DENSEFORMER_KERNELS_GEMM_GEMM_H_
#define DENSEFORMER_KERNELS_GEMM_GEMM_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/function_ref.h"
#include "tensor/tensor.h"
#include "tensor/weight_format.h"

namespace denseformer {

struct GemmBackend;
class GemmWeight;
class FrozenWeight;

// A weight matrix prepared for GEMMs: where the backend needs it, a copy in the layout that its
// kernels read for x W^T (for dy W it is transposed on the fly), else a view of the master.
class PackedWeight {
 public:
  // For W [out, in] at `master`, which must outlive this object; Refresh() or Change() comes before
  // the first GEMM. The second form names the backend.
  PackedWeight(const Tensor& master, DType compute);
  PackedWeight(const Tensor& master, DType compute, const GemmBackend& backend);
  // A frozen W [out, in] without a master (frozen.h), in FrozenBytes() of zeroed memory that
  // outlives this object; PackRows() fills it. There is no backward pass.
  PackedWeight(int64_t out, int64_t in, WeightFormat format, std::byte* memory);
  ~PackedWeight();
  PackedWeight(PackedWeight&&) noexcept;
  PackedWeight& operator=(PackedWeight&&) noexcept;

  // Updates the copy from the master; to be called after each change of it.
  void Refresh();
  // The same for a change by rows: calls change(first, last), from several threads, until all rows
  // of the master have been changed once; the copy is made while the rows are still in cache.
  void Change(FunctionRef<void(int64_t first, int64_t last)> change);

  // Of a frozen weight: FrozenWeight has the contracts.
  static size_t FrozenBytes(int64_t out, int64_t in, WeightFormat format);
  void PackRows(int64_t first, int64_t count, const float* rows, const float* scales = nullptr);
  void ReadRow(int64_t row, float* to) const;
  // Forward passes of few rows fetch the beginning of `next` when they are done.
  void SetNext(const PackedWeight& next);

  int64_t out() const { return master_.shape()[0]; }
  int64_t in() const { return master_.shape()[1]; }
  DType compute() const { return compute_; }
  // Bytes of the copy, and of the scratch memory in which LinearBackwardInput transposes it, with
  // the backend in use.
  static size_t CopyBytes(int64_t out, int64_t in, DType compute);
  static size_t TransposedBytes(int64_t out, int64_t in, DType compute);

  const GemmWeight& backend_weight() const { return *weight_; }

 private:
  FrozenWeight& frozen() const;

  Tensor master_;  // of a frozen weight the shape alone
  DType compute_;
  std::unique_ptr<GemmWeight> weight_;
};

// y [N, out] = x [N, in] W^T (+ bias [out] fp32, may be empty). x has the compute dtype, y the
// compute dtype or fp32.
void LinearForward(const Tensor& x, const PackedWeight& weight, const Tensor& bias,
                   const Tensor& y);

// fc [N, out] = x W^T (+ bias), gelu [N, out] = GELU(fc), both of the compute dtype, the bits those
// of LinearForward and GeluForward. fc may be empty where it is not needed.
void LinearGeluForward(const Tensor& x, const PackedWeight& weight, const Tensor& bias,
                       const Tensor& fc, const Tensor& gelu);

// qkv [B, T, 3 D] of the compute dtype = x W^T (+ bias), q and k rotated as by RotaryForward with
// `table` (rotary.h); the bits are those of the two passes.
void LinearRotaryForward(const Tensor& x, const PackedWeight& weight, const Tensor& bias,
                         const Tensor& table, int64_t heads, const Tensor& qkv);

// dx [N, in] = dy [N, out] W. dy has the compute dtype, dx the compute dtype or fp32.
void LinearBackwardInput(const Tensor& dy, const PackedWeight& weight, const Tensor& dx);

// dweight [out, in] fp32 = dy^T x, or dweight + dy^T x with `add`. *squares, where it is not null:
// the sum of the squares of dweight, taken while it is written; not finite where a value is not,
// and perhaps where one is beyond 1e18. The same bits whatever the number of threads.
void LinearBackwardWeight(const Tensor& dy, const Tensor& x, const Tensor& dweight, bool add,
                          double* squares = nullptr);

// dbias [out] fp32 += sum of the rows of dy.
void LinearBackwardBias(const Tensor& dy, const Tensor& dbias);

// The backends in use: "oneDNN 2.6.3, avx2".
std::string GemmDescription();
// What multiplies frozen weights of a format: "own kernels, AVX3 with BF16".
std::string FrozenGemmDescription(WeightFormat format);

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_GEMM_GEMM_H_
