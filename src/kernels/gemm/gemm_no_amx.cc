// For architectures without AMX: nothing here is ever called.
#include "kernels/gemm/gemm_amx.h"

namespace denseformer {

bool HasAmxGemm() { return false; }
int64_t AmxPackedSize(int64_t, int64_t) { return 0; }
void AmxPackBand(const Tensor&, int64_t, bf16*) { DF_CHECK(HasAmxGemm()); }
void AmxMultiply(const Tensor&, const bf16*, const AmxOutput&) { DF_CHECK(HasAmxGemm()); }
void AmxMultiplyTurned(const Tensor&, const bf16*, const Tensor&) { DF_CHECK(HasAmxGemm()); }
void AmxMultiplyTransposed(const Tensor&, const Tensor&, const Tensor&, bool, double*) {
  DF_CHECK(HasAmxGemm());
}

}  // namespace denseformer
