// Rows of x as the kernels of frozen panels read them (gemm_panels.h gives the layouts): where they
// lie, or a copy that is padded, spread or quantized.
#ifndef DENSEFORMER_KERNELS_GEMM_PANEL_INPUT_H_
#define DENSEFORMER_KERNELS_GEMM_PANEL_INPUT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/gemm/gemm_panels.h"
#include "tensor/tensor.h"
#include "tensor/weight_format.h"

namespace denseformer {

struct PanelInput {
  const std::byte* data;
  int64_t stride;           // bytes from one row to the next
  int64_t word_bytes;       // of a word of x
  const Int8Group* groups;  // int8, else null
  int64_t groups_stride;

  // From word `word` of row `row` on.
  const std::byte* At(int64_t row, int64_t word) const {
    return data + row * stride + word * word_bytes;
  }
  const Int8Group* GroupsAt(int64_t row, int64_t word) const {
    return groups == nullptr ? nullptr : groups + row * groups_stride + word / kInt8GroupWords;
  }
};

// Of x [N, in] of the compute dtype of the format. A copy lies in memory of the calling thread, and
// is valid until its next call.
PanelInput PreparePanelInput(const Tensor& x, WeightFormat format);

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_GEMM_PANEL_INPUT_H_
