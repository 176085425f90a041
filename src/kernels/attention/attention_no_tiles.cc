// Stands in for attention_tiles.cc where the compiler's target is not x86-64.
#include "kernels/attention/attention_head.h"

namespace denseformer {

bool AttentionHeadForwardTiles(const AttentionHead<bf16>&, bf16*, float*) { return false; }

bool AttentionHeadBackwardTiles(const AttentionHead<bf16>&, const AttentionHeadGradients<bf16>&) {
  return false;
}

}  // namespace denseformer
