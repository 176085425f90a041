// A panel is read in parts. All rows of the chunk pass by a part, in blocks whose sums stay in
// registers, before the next part comes; after the last one the sums become results. Parts change
// no bit: each sum still takes its terms in their order (panel_kernels-inl.h).
#include "kernels/gemm/panel_run.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/simd.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/panel_run.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on
#include "kernels/erf-inl.h"
#include "kernels/gemm/panel_kernels-inl.h"
#include "kernels/load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kRows = static_cast<int64_t>(kPanelRows);
constexpr int64_t kWordBytes = kRows * 4;  // words of a panel side by side
// Words of a part. They and the words of x stay in cache, and the distance to what is fetched is
// the same in matrices of any size.
constexpr int64_t kPartWords = 384;
static_assert(kPartWords % kInt8GroupWords == 0);

constexpr int64_t DivUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Sums of `rows` rows of a panel, to results at `to` and `gelu` (or null), `stride` apart: scale,
// bias, rounding, GELU of what was rounded.
template <class T>
HWY_INLINE void StoreResults(const float* sums, int64_t rows, const float* scales,
                             const float* bias, T* to, T* gelu, int64_t stride) {
  const PanelTag d;
  for (size_t v = 0; v < kPanelRows; v += kPanelLanes) {
    const auto scale = scales == nullptr ? hn::Set(d, 1.0f) : hn::LoadU(d, scales + v);
    const auto add = bias == nullptr ? hn::Zero(d) : hn::LoadU(d, bias + v);
    for (int64_t n = 0; n < rows; ++n) {
      auto sum = hn::Load(d, sums + static_cast<size_t>(n) * kPanelRows + v);
      if (scales != nullptr) sum = hn::Mul(sum, scale);
      if (bias != nullptr) sum = hn::Add(sum, add);
      const size_t at = static_cast<size_t>(n * stride) + v;
      StoreF32(d, sum, to + at);
      if (gelu == nullptr) continue;
      StoreF32(d, Gelu<std::is_same_v<T, float>>(d, LoadF32(d, to + at)), gelu + at);
    }
  }
}

// The same for the last columns of a matrix, where those behind them would be the next row's.
template <class T>
HWY_NOINLINE void StoreLastResults(const float* sums, int64_t rows, const float* scales,
                                   const float* bias, T* to, T* gelu, int64_t stride,
                                   int64_t columns) {
  HWY_ALIGN T whole[2][kMostBlockRows * kRows];
  HWY_ALIGN float whole_bias[kRows] = {};
  if (bias != nullptr) std::copy_n(bias, columns, whole_bias);
  StoreResults(sums, rows, scales, bias == nullptr ? nullptr : whole_bias, whole[0],
               gelu == nullptr ? nullptr : whole[1], kRows);
  for (int64_t n = 0; n < rows; ++n) {
    // Where only GELU is wanted, `to` is its place too: what is stored last stays.
    std::copy_n(whole[0] + n * kRows, columns, to + n * stride);
    if (gelu != nullptr) std::copy_n(whole[1] + n * kRows, columns, gelu + n * stride);
  }
}

template <class T>
HWY_INLINE void FinishBlock(const PanelGemm& g, const float* sums, int64_t row, int64_t rows,
                            int64_t column) {
  const int64_t at = row * g.out + column, columns = std::min(kRows, g.out - column);
  const float* const scales = g.scales == nullptr ? nullptr : g.scales + column;
  const float* const bias = g.bias == nullptr ? nullptr : g.bias + column;
  T* const gelu = g.gelu == nullptr ? nullptr : static_cast<T*>(g.gelu) + at;
  T* const to = g.y == nullptr ? gelu : static_cast<T*>(g.y) + at;
  if (columns == kRows) {
    StoreResults(sums, rows, scales, bias, to, gelu, g.out);
  } else {
    StoreLastResults(sums, rows, scales, bias, to, gelu, g.out, columns);
  }
}

template <class Step, template <class> class Form, class T>
void RunPanels(const PanelGemm& g, const PanelInput& input, const PanelRun& run) {
  static_assert(Step::kMostRows <= kMostBlockRows);
  HWY_ALIGN float sums[kMostChunkRows * kRows];
  // Tiles have a fixed number of rows, filled or not; else blocks are of about equal size.
  const bool tiles = UsesInt8Tiles(g.format, run.rows);
  const int64_t most = tiles ? kInt8BlockRows : int64_t{Step::kMostRows};
  const int64_t blocks = DivUp(run.rows, most), size = tiles ? most : DivUp(run.rows, blocks);
  const int64_t step = blocks == 1 ? g.words : kPartWords;
  const std::byte* part = g.panels + run.first * g.words * kWordBytes;
  for (int64_t panel = run.first; panel < run.first + run.count; ++panel) {
    for (int64_t word = 0; word < g.words; word += step) {
      const int64_t words = std::min(step, g.words - word), bytes = words * kWordBytes;
      const bool last = word + words == g.words;
      // What is read once is fetched a little ahead. What is read several times is in cache after
      // the first: what comes next is fetched over all of them.
      const bool ends = last && panel + 1 == run.first + run.count;
      const std::byte* const next = ends ? run.next : part + bytes;
      const std::byte* const fetch = blocks == 1 ? part + kPanelAhead : next;
      for (int64_t b = 0; b < blocks; ++b) {
        const int64_t row = b * size;
        const PanelBlock block = {.x = input.At(run.row + row, word),
                                  .x_stride = input.stride,
                                  .panel = part,
                                  .words = words,
                                  .rows = std::min(run.rows - row, size),
                                  .fetch = fetch + b * (bytes / blocks),
                                  .fetch_step = kWordBytes / blocks,
                                  .groups = input.GroupsAt(run.row + row, word),
                                  .groups_stride = input.groups_stride,
                                  .add = word > 0,
                                  .sums = sums + row * kRows};
        if (UsesInt8Tiles(g.format, block.rows)) {
          RunInt8Tiles(block);
        } else {
          RunBlock<Step, Form>(block);
        }
        if (last) FinishBlock<T>(g, block.sums, run.row + row, block.rows, panel * kRows);
      }
      part += bytes;
    }
  }
}

void MultiplyPanels(const PanelGemm& g, const PanelInput& input, const PanelRun& run) {
  WithStep(g.format, [&]<class Step, template <class> class Form>() HWY_ATTR {
    if (g.dtype == DType::kF32) {
      RunPanels<Step, Form, float>(g, input, run);
    } else {
      RunPanels<Step, Form, bf16>(g, input, run);
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace denseformer {
namespace {

HWY_EXPORT(MultiplyPanels);

// Blocks of fewer rows are for VNNI. 128 terms of a panel keep its ports busy for 32 cycles per
// row; tiles take 64 for up to 16 rows, and some 100 from the last product to the sums in memory.
constexpr int64_t kLeastTileRows = 8;

}  // namespace

void MultiplyPanels(const PanelGemm& gemm, const PanelInput& input, const PanelRun& run) {
  DF_DYNAMIC_DISPATCH(MultiplyPanels)(gemm, input, run);
}

bool UsesInt8Tiles(WeightFormat format, int64_t rows) {
  return format == WeightFormat::kInt8 && rows >= kLeastTileRows && HasInt8Tiles();
}

}  // namespace denseformer
#endif  // HWY_ONCE
