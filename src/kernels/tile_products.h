// Products of bf16 operands in the tile layouts of amx.h, on any CPU with AVX-512 BF16: by AMX
// where the CPU has it, else by dot products of vectors. The two differ in the last bits of a sum.
#ifndef DENSEFORMER_KERNELS_TILE_PRODUCTS_H_
#define DENSEFORMER_KERNELS_TILE_PRODUCTS_H_

#include <optional>

#include "kernels/amx.h"

namespace denseformer {

// To be used by one thread; holds the AMX tiles while it lives.
class TileProducts {
 public:
  TileProducts();

  // c [32, 32] (+)= left [32, 32 * steps] right [32 * steps, 32]; rows of c are c_stride apart.
  void Multiply(const amx::LeftTiles& left, const amx::RightTiles& right, size_t steps, bool add,
                float* c, size_t c_stride) const {
    multiply_(left, right, steps, add, c, c_stride);
  }

 private:
  std::optional<amx::TileScope> tiles_;
  decltype(&amx::Multiply) multiply_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_TILE_PRODUCTS_H_
