// Matrix products: bf16 on AMX by kernels of our own, everything else by oneDNN (gemm_onednn.cc is
// the only file that knows it).
//
// A Linear layer is y = x W^T (+ bias), W [out, in]. Compute is fp32 or bf16 with fp32 sums; the
// weights' master copy is always fp32.
#ifndef DENSEFORMER_KERNELS_GEMM_GEMM_H_
#define DENSEFORMER_KERNELS_GEMM_GEMM_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/function_ref.h"
#include "tensor/tensor.h"

namespace denseformer {

// A weight matrix made ready for products: in bf16 one copy in the layout in which the matrix units
// read it for x W^T (for dy W it is turned when it is used), in fp32 a view of the master.
class PackedWeight {
 public:
  // For W [out, in] held at `master`, which must outlive this object.
  PackedWeight(const Tensor& master, DType compute);
  ~PackedWeight();
  PackedWeight(PackedWeight&&) noexcept;
  PackedWeight& operator=(PackedWeight&&) noexcept;

  // Brings the copy up to date with the master; to be called after each change of it.
  void Refresh();
  // The same for a change by rows: calls change(first, last), from several threads, until all rows
  // of the master have been changed once; the copy is made while the rows are still in cache.
  void Change(FunctionRef<void(int64_t first, int64_t last)> change);

  int64_t out() const;
  int64_t in() const;
  DType compute() const;
  // Bytes of the copy, and of the scratch memory that LinearBackwardInput turns it in.
  static size_t CopyBytes(int64_t out, int64_t in, DType compute);
  static size_t TurnedBytes(int64_t out, int64_t in, DType compute);

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// y [N, out] = x [N, in] W^T (+ bias [out] fp32, may be empty). x has the compute dtype, y the
// compute dtype or fp32.
void LinearForward(const Tensor& x, const PackedWeight& weight, const Tensor& bias,
                   const Tensor& y);

// fc [N, out] = x W^T (+ bias), gelu [N, out] = GELU(fc), both of the compute dtype, the bits those
// of LinearForward and GeluForward. fc may be empty where nobody needs it.
void LinearGeluForward(const Tensor& x, const PackedWeight& weight, const Tensor& bias,
                       const Tensor& fc, const Tensor& gelu);

// qkv [B, T, 3 D] of the compute dtype = x W^T (+ bias), q and k turned by RotaryForward with
// `table` (rotary.h); the bits are those of the two passes.
void LinearRotaryForward(const Tensor& x, const PackedWeight& weight, const Tensor& bias,
                         const Tensor& table, int64_t heads, const Tensor& qkv);

// dx [N, in] = dy [N, out] W. dy has the compute dtype, dx the compute dtype or fp32.
void LinearBackwardInput(const Tensor& dy, const PackedWeight& weight, const Tensor& dx);

// dweight [out, in] fp32 = dy^T x, or dweight + dy^T x with `add`. *squares, where it is given: the
// sum of the squares of dweight, taken while it is written; not finite where a value is not, and
// perhaps where one is beyond 1e18. The same bits whatever the number of threads.
void LinearBackwardWeight(const Tensor& dy, const Tensor& x, const Tensor& dweight, bool add,
                          double* squares = nullptr);

// dbias [out] fp32 += sum of the rows of dy.
void LinearBackwardBias(const Tensor& dy, const Tensor& dbias);

// "oneDNN 2.6.3, AMX".
std::string GemmDescription();

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_GEMM_GEMM_H_
