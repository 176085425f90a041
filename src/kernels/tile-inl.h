// Products of small fp32 matrices in cache: a tile of C stays in registers while the sum runs.
//
//   C [kRows, kTileCols] (+)= A [kRows, inner] B [inner, kTileCols]
//
// A tile is 12 x 2 vectors where there are 32 registers, 6 x 2 where there are 16. The caller pads
// its matrices so that only whole tiles occur.
#if defined(DENSEFORMER_KERNELS_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DENSEFORMER_KERNELS_TILE_INL_H_
#undef DENSEFORMER_KERNELS_TILE_INL_H_
#else
#define DENSEFORMER_KERNELS_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <utility>

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {

using TileTag = hwy::HWY_NAMESPACE::CappedTag<float, 16>;
using TileVec = hwy::HWY_NAMESPACE::Vec<TileTag>;
inline constexpr size_t kTileLanes = hwy::HWY_NAMESPACE::MaxLanes(TileTag());
inline constexpr size_t kTileCols = 2 * kTileLanes;
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
inline constexpr size_t kTileRows = 12;
#else
inline constexpr size_t kTileRows = 6;
#endif

// How A lies in memory: its rows contiguous, or its columns.
enum class TileA { kRowMajor, kColumnMajor };
enum class TileC { kSet, kAdd };

template <TileA kA, TileC kC, size_t... I>
HWY_INLINE void TileProductUnrolled(std::index_sequence<I...>, const float* a, size_t a_stride,
                                    const float* b, size_t b_stride, size_t inner, float* c,
                                    size_t c_stride) {
  namespace hn = hwy::HWY_NAMESPACE;
  const TileTag d;
  // Element I of the tile is vector I % 2 of row I / 2; names fixed at compile time keep the sums
  // in registers.
  TileVec sum[sizeof...(I)];
  if constexpr (kC == TileC::kAdd) {
    ((sum[I] = hn::LoadU(d, c + (I / 2) * c_stride + (I % 2) * kTileLanes)), ...);
  } else {
    ((sum[I] = hn::Zero(d)), ...);
  }
  for (size_t k = 0; k < inner; ++k) {
    const TileVec b0 = hn::LoadU(d, b), b1 = hn::LoadU(d, b + kTileLanes);
    if constexpr (kA == TileA::kRowMajor) {
      ((sum[I] = hn::MulAdd(hn::Set(d, a[(I / 2) * a_stride]), I % 2 ? b1 : b0, sum[I])), ...);
      ++a;
    } else {
      ((sum[I] = hn::MulAdd(hn::Set(d, a[I / 2]), I % 2 ? b1 : b0, sum[I])), ...);
      a += a_stride;
    }
    b += b_stride;
  }
  (hn::StoreU(sum[I], d, c + (I / 2) * c_stride + (I % 2) * kTileLanes), ...);
}

// One row of tiles: C [kRows, cols], cols a multiple of kTileCols.
template <size_t kRows, TileA kA, TileC kC>
HWY_NOINLINE void TileProduct(const float* a, size_t a_stride, const float* b, size_t b_stride,
                              size_t inner, float* c, size_t c_stride, size_t cols) {
  for (size_t col = 0; col < cols; col += kTileCols) {
    TileProductUnrolled<kA, kC>(std::make_index_sequence<2 * kRows>(), a, a_stride, b + col,
                                b_stride, inner, c + col, c_stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#endif  // DENSEFORMER_KERNELS_TILE_INL_H_
