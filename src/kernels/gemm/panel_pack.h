// Rows of W become panels (gemm_panels.h), and what GEMMs of int8 weights round them to.
#ifndef DENSEFORMER_KERNELS_GEMM_PANEL_PACK_H_
#define DENSEFORMER_KERNELS_GEMM_PANEL_PACK_H_

#include <cstddef>
#include <cstdint>

#include "kernels/gemm/gemm_panels.h"

namespace denseformer {

// Packs rows [count, in] of W, at most kPanelRows, into a whole panel, with zeros for rows that do
// not exist. int8: `scales` [count] receives the scales of the rows, which are those of `given`
// [count] where that is not null. Several threads may pack different panels.
void PackPanel(WeightFormat format, const float* rows, int64_t count, int64_t in,
               const float* given, std::byte* panel, float* scales);

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_GEMM_PANEL_PACK_H_
