// Matrix products on oneDNN: what gemm.cc uses where no kernel of our own is better. The functions
// are those of gemm.h, which documents them.
#ifndef DENSEFORMER_KERNELS_GEMM_GEMM_ONEDNN_H_
#define DENSEFORMER_KERNELS_GEMM_GEMM_ONEDNN_H_

#include <cstdint>
#include <memory>
#include <string>

#include "tensor/tensor.h"

namespace denseformer {

class OneDnnWeight {
 public:
  OneDnnWeight(const Tensor& master, DType compute);
  ~OneDnnWeight();

  void Refresh();
  int64_t out() const;
  int64_t in() const;
  static size_t CopyBytes(int64_t out, int64_t in, DType compute);
  static size_t TurnedBytes(int64_t out, int64_t in, DType compute);

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

void OneDnnForward(const Tensor& x, const OneDnnWeight& weight, const Tensor& bias,
                   const Tensor& y);
void OneDnnBackwardInput(const Tensor& dy, const OneDnnWeight& weight, const Tensor& dx);
void OneDnnBackwardWeight(const Tensor& dy, const Tensor& x, const Tensor& dweight, bool add);
std::string OneDnnDescription();

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_GEMM_GEMM_ONEDNN_H_
