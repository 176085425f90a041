// For architectures without AMX: nothing here is ever called.
#include "kernels/gemm_amx.h"

namespace denseformer {

bool HasAmxGemm() { return false; }
int64_t AmxPackedSize(int64_t, int64_t) { return 0; }
void AmxPackBand(const AmxWeight&, int64_t) { DF_CHECK(HasAmxGemm()); }
void AmxMultiply(const Tensor&, const bf16*, const AmxOutput&) { DF_CHECK(HasAmxGemm()); }
void AmxMultiplyTransposed(const Tensor&, const Tensor&, const Tensor&, bool) {
  DF_CHECK(HasAmxGemm());
}

}  // namespace denseformer
