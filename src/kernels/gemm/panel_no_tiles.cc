// Stands in for panel_tiles.cc where the compiler's target is not x86-64.
#include "base/error.h"
#include "kernels/gemm/gemm_panels.h"

namespace denseformer {

bool HasInt8Tiles() { return false; }
void RunInt8Tiles(const PanelBlock&) { DF_CHECK(false); }
void ReleaseInt8Tiles() {}

}  // namespace denseformer
