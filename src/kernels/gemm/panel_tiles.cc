// int8 panels on AMX tiles. A panel is what the tiles read as right operand: 16 words of 32 columns
// are two tiles whose rows are 128 bytes apart; rows of quantized x are left operands.
//
// The sums of a group of 128 terms are exact, as those of VNNI are, and are scaled and added in the
// same order: the bits do not depend on which of the two computes.
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "base/cpu.h"
#include "kernels/amx-inl.h"
#include "kernels/amx.h"
#include "kernels/gemm/gemm_panels.h"

DF_BEGIN_AVX512_BF16
namespace denseformer {
namespace {

constexpr int64_t kTileRows = 16, kTileWords = 16;
constexpr int64_t kWordBytes = static_cast<int64_t>(kPanelRows) * 4;  // of a panel
constexpr int64_t kStepBytes = kTileWords * kWordBytes;
static_assert(kInt8BlockRows == 2 * kTileRows && kInt8GroupWords % kTileWords == 0);

// Sums of a group: rows of 32 columns.
struct alignas(64) GroupSums {
  int32_t at[kInt8BlockRows * kPanelRows];
};

// A group's tiles of x and of the panel.
struct GroupTiles {
  const std::byte* x;
  int64_t x_stride;
  const std::byte* panel;
  int64_t steps;          // of 16 words
  const std::byte* last;  // the panel's words of the last step
};

// Tiles 0 and 1 are the sums of the first 16 rows, 2 and 3 those of the next.
template <bool kTwoTiles>
HWY_INLINE void MultiplyGroup(const GroupTiles& g) {
  DF_TILE_ZERO(0);
  DF_TILE_ZERO(1);
  if constexpr (kTwoTiles) {
    DF_TILE_ZERO(2);
    DF_TILE_ZERO(3);
  }
  for (int64_t s = 0; s < g.steps; ++s) {
    const std::byte* const w = s + 1 == g.steps ? g.last : g.panel + s * kStepBytes;
    const std::byte* const x = g.x + s * kTileWords * 4;
    DF_TILE_LOAD(4, x, g.x_stride);
    DF_TILE_LOAD(6, w, kWordBytes);
    DF_TILE_MULTIPLY_INT8(0, 4, 6);
    DF_TILE_LOAD(7, w + kWordBytes / 2, kWordBytes);
    DF_TILE_MULTIPLY_INT8(1, 4, 7);
    if constexpr (kTwoTiles) {
      DF_TILE_LOAD(5, x + kTileRows * g.x_stride, g.x_stride);
      DF_TILE_MULTIPLY_INT8(2, 5, 6);
      DF_TILE_MULTIPLY_INT8(3, 5, 7);
    }
  }
}

template <bool kTwoTiles>
HWY_INLINE void StoreGroup(GroupSums* to) {
  DF_TILE_STORE(0, to->at, kWordBytes);
  DF_TILE_STORE(1, to->at + kTileRows, kWordBytes);
  if constexpr (kTwoTiles) {
    int32_t* const second = to->at + kTileRows * static_cast<int64_t>(kPanelRows);
    DF_TILE_STORE(2, second, kWordBytes);
    DF_TILE_STORE(3, second + kTileRows, kWordBytes);
  }
}

// sums [rows, 32] += scale * (group's sum + offset).
HWY_INLINE void AddGroup(const PanelBlock& b, int64_t group, const GroupSums& from) {
  for (int64_t r = 0; r < b.rows; ++r) {
    const Int8Group& g = b.groups[r * b.groups_stride + group];
    const __m512i offset = _mm512_set1_epi32(g.offset);
    const __m512 scale = _mm512_set1_ps(g.scale);
    for (size_t v = 0; v < kPanelRows; v += 16) {
      const size_t at = static_cast<size_t>(r) * kPanelRows + v;
      const __m512i exact = _mm512_add_epi32(_mm512_load_si512(from.at + at), offset);
      const __m512 before =
          group == 0 && !b.add ? _mm512_setzero_ps() : _mm512_load_ps(b.sums + at);
      _mm512_store_ps(b.sums + at, _mm512_fmadd_ps(_mm512_cvtepi32_ps(exact), scale, before));
    }
  }
}

HWY_INLINE void FetchGroup(const PanelBlock& b, int64_t group) {
  const std::byte* fetch = b.fetch + group * kInt8GroupWords * b.fetch_step;
  for (int64_t k = 0; k < kInt8GroupWords; ++k, fetch += b.fetch_step) {
    __builtin_prefetch(fetch, 0, /*locality=*/2);
    __builtin_prefetch(fetch + b.fetch_step / 2, 0, /*locality=*/2);
  }
}

template <bool kTwoTiles>
void RunGroups(const PanelBlock& b) {
  // The words of the last step, where they are fewer than a tile's.
  alignas(64) std::byte padded[kStepBytes];
  const int64_t tail = b.words % kTileWords;
  if (tail > 0) {
    const size_t bytes = static_cast<size_t>(tail * kWordBytes);
    std::memcpy(padded, b.panel + (b.words - tail) * kWordBytes, bytes);
    std::memset(padded + bytes, 0, sizeof(padded) - bytes);
  }
  GroupSums sums[2];  // of this group and the one before, which is added while the tiles compute
  const int64_t groups = Int8Groups(b.words);
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t first = g * kInt8GroupWords;
    const int64_t words = std::min(kInt8GroupWords, b.words - first);
    const int64_t steps = (words + kTileWords - 1) / kTileWords;
    const std::byte* const panel = b.panel + first * kWordBytes;
    const bool partial = tail > 0 && g + 1 == groups;
    MultiplyGroup<kTwoTiles>({.x = b.x + first * 4,
                              .x_stride = b.x_stride,
                              .panel = panel,
                              .steps = steps,
                              .last = partial ? padded : panel + (steps - 1) * kStepBytes});
    FetchGroup(b, g);
    if (g > 0) AddGroup(b, g - 1, sums[(g - 1) % 2]);
    StoreGroup<kTwoTiles>(&sums[g % 2]);
  }
  AddGroup(b, groups - 1, sums[(groups - 1) % 2]);
}

void RunTiles(const PanelBlock& b) {
  if (b.rows > kTileRows) {
    RunGroups<true>(b);
  } else {
    RunGroups<false>(b);
  }
}

}  // namespace
}  // namespace denseformer
DF_END_AVX512_BF16

namespace denseformer {

bool HasInt8Tiles() {
  static const bool has = GetCpuFeatures().Has(CpuFeature::kAmxInt8);
  return has;
}

void RunInt8Tiles(const PanelBlock& block) {
  amx::BeginTiles(kInt8BlockRows);
  RunTiles(block);
}

void ReleaseInt8Tiles() { amx::EndTiles(); }

}  // namespace denseformer
