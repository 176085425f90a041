// Products over units of 4 bytes: an fp32, or a pair of bf16 that follow each other in the sum.
//
//   C [kRows, cols] (+)= A [kRows, inner] B [inner, cols], inner counts units
//
// While an element of B is read, the memory `ahead` bytes further is fetched into L2: line by line,
// because a core that asks for many lines at once waits for its line buffers instead of computing.
//
// Every sum takes its units in order, one after another, whatever the rows and columns of the call:
// a row has the same bits alone and among others. With AVX-512 BF16 a pair is one dot product.
#if defined(DENSEFORMER_KERNELS_ATTENTION_ATTENTION_UNITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DENSEFORMER_KERNELS_ATTENTION_ATTENTION_UNITS_INL_H_
#undef DENSEFORMER_KERNELS_ATTENTION_ATTENTION_UNITS_INL_H_
#else
#define DENSEFORMER_KERNELS_ATTENTION_ATTENTION_UNITS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "kernels/simd.h"
#include "kernels/tile-inl.h"
#include "tensor/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {

struct Fp32Units {
  static HWY_INLINE TileVec MulAdd(TileVec a, TileVec b, TileVec sum) {
    return hwy::HWY_NAMESPACE::MulAdd(a, b, sum);
  }
};

// By fp32 arithmetic, for any CPU.
struct Bf16Pairs {
  static HWY_INLINE TileVec First(TileVec pair) {
    namespace hn = hwy::HWY_NAMESPACE;
    const hn::RebindToUnsigned<TileTag> du;
    return hn::BitCast(TileTag(), hn::ShiftLeft<16>(hn::BitCast(du, pair)));
  }
  static HWY_INLINE TileVec Second(TileVec pair) {
    namespace hn = hwy::HWY_NAMESPACE;
    const hn::RebindToUnsigned<TileTag> du;
    return hn::BitCast(TileTag(), hn::And(hn::BitCast(du, pair), hn::Set(du, 0xffff0000u)));
  }
  static HWY_INLINE TileVec MulAdd(TileVec a, TileVec b, TileVec sum) {
    namespace hn = hwy::HWY_NAMESPACE;
    return hn::MulAdd(Second(a), Second(b), hn::MulAdd(First(a), First(b), sum));
  }
};

#if HWY_TARGET <= HWY_AVX3  // and better ones
// The compiler's flags for AVX3 do not name AVX-512 BF16, hence by hand.
struct Bf16DotProducts {
  static HWY_INLINE TileVec MulAdd(TileVec a, TileVec b, TileVec sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
    return sum;
  }
};
#endif

// Bytes that may have been written as bf16.
HWY_INLINE float LoadUnit(const float* from) {
  float unit;
  std::memcpy(&unit, from, sizeof(unit));
  return unit;
}

// What a unit of b holds that counts.
enum class UnitPart { kWhole, kFirstOfPair };

// Into L2: the line buffers of L1 alone would hold a core to half of the memory's bandwidth.
HWY_INLINE void FetchAhead(const float* from, ptrdiff_t ahead) {
  __builtin_prefetch(reinterpret_cast<const char*>(from) + ahead, 0, /*locality=*/2);
}

template <class Units, size_t kRows, size_t kVectors, TileC kC, UnitPart kPart>
HWY_INLINE void UnitTile(const float* a, size_t a_stride, const float* b, size_t b_stride,
                         size_t inner, float* c, size_t c_stride, ptrdiff_t ahead) {
  namespace hn = hwy::HWY_NAMESPACE;
  const TileTag d;
  TileVec sum[kRows][kVectors];
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) {
      sum[r][v] = kC == TileC::kAdd ? hn::LoadU(d, c + r * c_stride + v * kTileLanes) : hn::Zero(d);
    }
  }
  for (size_t k = 0; k < inner; ++k, b += b_stride) {
    TileVec row[kVectors];
    for (size_t v = 0; v < kVectors; ++v) {
      row[v] = hn::LoadU(d, b + v * kTileLanes);
      FetchAhead(b + v * kTileLanes, ahead);
      if constexpr (kPart == UnitPart::kFirstOfPair) {
        const hn::RebindToUnsigned<TileTag> du;
        row[v] = hn::BitCast(d, hn::And(hn::BitCast(du, row[v]), hn::Set(du, 0xffffu)));
      }
    }
    for (size_t r = 0; r < kRows; ++r) {
      const TileVec factor = hn::Set(d, LoadUnit(a + r * a_stride + k));
      for (size_t v = 0; v < kVectors; ++v) sum[r][v] = Units::MulAdd(factor, row[v], sum[r][v]);
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) {
      hn::StoreU(sum[r][v], d, c + r * c_stride + v * kTileLanes);
    }
  }
}

// Vectors of a row that a tile keeps in registers. With four a row of 64 elements is read as it
// lies in memory, by vectors of 512 bits.
constexpr size_t UnitTileVectors(size_t rows) { return rows == 1 ? 4 : 2; }

template <class Units, size_t kRows, TileC kC, UnitPart kPart>
HWY_NOINLINE void UnitTiles(const float* a, size_t a_stride, const float* b, size_t b_stride,
                            size_t inner, float* c, size_t c_stride, size_t cols, ptrdiff_t ahead) {
  constexpr size_t kMost = UnitTileVectors(kRows), kHalf = kMost / 2;
  size_t col = 0;
  for (; col + kMost * kTileLanes <= cols; col += kMost * kTileLanes) {
    UnitTile<Units, kRows, kMost, kC, kPart>(a, a_stride, b + col, b_stride, inner, c + col,
                                             c_stride, ahead);
  }
  for (; col + kHalf * kTileLanes <= cols; col += kHalf * kTileLanes) {
    UnitTile<Units, kRows, kHalf, kC, kPart>(a, a_stride, b + col, b_stride, inner, c + col,
                                             c_stride, ahead);
  }
  for (; col < cols; col += kTileLanes) {
    UnitTile<Units, kRows, 1, kC, kPart>(a, a_stride, b + col, b_stride, inner, c + col, c_stride,
                                         ahead);
  }
}

// Calls multiply(Units) with the products of units of E on this CPU.
template <class E, class F>
HWY_INLINE void WithUnits(F&& multiply) {
  if constexpr (std::is_same_v<E, float>) {
    multiply(Fp32Units());
  } else {
#if HWY_TARGET <= HWY_AVX3
    if (simd_internal::has_avx512_bf16) return multiply(Bf16DotProducts());
#endif
    multiply(Bf16Pairs());
  }
}

// Units of E; strides count units, `cols` is a multiple of 16.
template <class E, size_t kRows, TileC kC, UnitPart kPart = UnitPart::kWhole>
void MultiplyUnits(const float* a, size_t a_stride, const float* b, size_t b_stride, size_t inner,
                   float* c, size_t c_stride, size_t cols, ptrdiff_t ahead) {
  WithUnits<E>([&]<class Units>(Units) HWY_ATTR {
    UnitTiles<Units, kRows, kC, kPart>(a, a_stride, b, b_stride, inner, c, c_stride, cols, ahead);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#endif  // DENSEFORMER_KERNELS_ATTENTION_ATTENTION_UNITS_INL_H_
