// What one thread does of y = x W^T for frozen W: some panels times a chunk of the rows of x.
#ifndef DENSEFORMER_KERNELS_GEMM_PANEL_RUN_H_
#define DENSEFORMER_KERNELS_GEMM_PANEL_RUN_H_

#include <cstddef>
#include <cstdint>

#include "kernels/gemm/panel_input.h"
#include "tensor/dtype.h"
#include "tensor/weight_format.h"

namespace denseformer {

// Rows of a chunk: so many that reading the weights again for the next chunk is not what takes the
// time.
inline constexpr int64_t kMostChunkRows = 64;

// W and where the results go.
struct PanelGemm {
  WeightFormat format;
  const std::byte* panels;
  int64_t words;  // of a panel
  int64_t out;
  const float* scales;  // [out, padded to whole panels] int8; or null
  const float* bias;    // [out] or null
  void* y;              // [N, out]; null: only GELU is wanted
  void* gelu;           // [N, out] GELU of what y is rounded to; or null
  DType dtype;          // of y and gelu
};

// Panels [first, first + count), rows [row, row + rows), at most kMostChunkRows.
struct PanelRun {
  int64_t first, count;
  int64_t row, rows;
  const std::byte* next;  // what the thread reads after them
};

// Sets the columns of these panels in these rows of the results.
void MultiplyPanels(const PanelGemm& gemm, const PanelInput& input, const PanelRun& run);

// Whether MultiplyPanels uses AMX tiles, which the thread releases when it is done
// (ReleaseInt8Tiles).
bool UsesInt8Tiles(WeightFormat format, int64_t rows);

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_GEMM_PANEL_RUN_H_
