// What gemm_amx.cc lends to gemm_amx_frozen.cc: weights in its layout. To be called with
// CpuFeature::kAmxBf16.
#ifndef DENSEFORMER_KERNELS_GEMM_GEMM_AMX_H_
#define DENSEFORMER_KERNELS_GEMM_GEMM_AMX_H_

#include <cstddef>
#include <cstdint>

#include "kernels/gemm/backend.h"
#include "kernels/gemm/frozen.h"

namespace denseformer {

// Bytes of a packed W [out, in].
size_t AmxPackedBytes(int64_t out, int64_t in);

// Packs up to kFrozenRows rows of W at `rows` [count, in]. The panels of a band follow each other,
// those of the next band follow them.
void AmxPackBand(const float* rows, int64_t count, int64_t in, bf16* band);

// y = x W^T of a packed W [out, in], for any number of rows.
void AmxForward(const Tensor& x, const bf16* packed, int64_t out, const GemmEpilogue& epilogue,
                const Tensor& y);

// Frozen weights in bf16 (gemm_amx_frozen.cc).
extern const FrozenGemm kAmxFrozenGemm;

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_GEMM_GEMM_AMX_H_
