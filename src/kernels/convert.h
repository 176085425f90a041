// Copies between element types.
#ifndef DENSEFORMER_KERNELS_CONVERT_H_
#define DENSEFORMER_KERNELS_CONVERT_H_

#include "tensor/tensor.h"

namespace denseformer {

// to = from, rounding to nearest even from fp32 to bf16. Same count of elements.
void Convert(const Tensor& from, const Tensor& to);

// The same for n elements on the calling thread, with non-temporal stores: for what is not read
// soon, and large (stream.h). hwy::FlushStream() must follow before another thread reads it.
void ConvertPast(const float* from, bf16* to, int64_t n);

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_CONVERT_H_
