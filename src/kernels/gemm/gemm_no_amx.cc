// Stands in for gemm_amx.cc where the compiler's target is not x86-64: a backend that is never
// available.
#include "kernels/gemm/backend.h"

namespace denseformer {

constinit extern const GemmBackend kAmxGemm = {
    .name = "amx",
    .requirements = "bf16 and a CPU with AMX",
    .available = [](DType, CpuFeatures) { return false; },
    .description = nullptr,
    .packed_bytes = nullptr,
    .transposed_bytes = nullptr,
    .pack = nullptr,
    .backward_weight = nullptr,
};

}  // namespace denseformer
