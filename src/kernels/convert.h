// Copies between element types.
#ifndef DENSEFORMER_KERNELS_CONVERT_H_
#define DENSEFORMER_KERNELS_CONVERT_H_

#include "tensor/tensor.h"

namespace denseformer {

// to = from, rounding to nearest even from fp32 to bf16. Same count of elements.
void Convert(const Tensor& from, const Tensor& to);

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_CONVERT_H_
