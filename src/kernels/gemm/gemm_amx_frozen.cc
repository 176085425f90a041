// Frozen bf16 weights on AMX tiles, in the layout of gemm_amx.cc. Many rows take its kernels. Few
// rows, those of a decode step, take one of their own: reading the weights is what costs time, so
// tiles hold no more rows than there are, rows of x are read where they lie, pairs of panels are
// shared out as threads come for them, and the memory is asked for what comes next.
//
// Every result is the sum over the tiles of terms in one order, whatever the number of rows.
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/parallel.h"
#include "base/team.h"
#include "kernels/amx-inl.h"
#include "kernels/amx.h"
#include "kernels/gemm/gemm_amx.h"
#include "kernels/stream.h"
#include "tensor/storage.h"

// Within the attributes and after the other includes, so that inline functions of other headers
// keep to the baseline.
DF_BEGIN_AVX512_BF16
#include "kernels/gemm/gemm_amx_block-inl.h"
#include "kernels/gemm/gemm_amx_epilogue-inl.h"
#include "kernels/gemm/gemm_amx_pack-inl.h"

namespace denseformer {
namespace {

// Beyond it the kernels of gemm_amx.cc are as fast.
constexpr int64_t kMostFewRows = 2 * kBlock;
// Where a pair of panels is read once: tiles of each panel from what is read to what is asked of
// the memory.
constexpr int64_t kAheadTiles = 4;
// Weights that are worth a thread of their own.
constexpr int64_t kGrainBytes = int64_t{16} << 10;

// Up to kMostFewRows rows of x, of whole tiles of terms.
struct FewRows {
  const bf16* data;
  int64_t stride;  // elements
  int64_t rows;

  // A block of rows fills two tiles; two blocks overlap where there are fewer than 2 * kBlock rows.
  int64_t blocks() const { return DivUp(rows, kBlock); }
  int64_t block_rows() const { return std::min(rows, kBlock); }
  int64_t block(int64_t b) const { return b == 0 ? 0 : rows - kBlock; }
};

// What is fetched at each step along the terms: `lines` of both panels of a pair.
struct PairFetch {
  const bf16* here;   // what is read, a pair of panels
  const bf16* next;   // what is read after it
  int64_t tiles;      // of a panel
  int64_t blocks, b;  // block `b` of `blocks` is read

  HWY_INLINE void Step(int64_t t) const {
    // A pair that is read twice is in cache the second time: the next one is fetched over both.
    if (blocks > 1) return Tile(next + (b * tiles + t) * kTile);
    const int64_t ahead = t + kAheadTiles;
    const bf16* const tile = ahead < tiles ? here + ahead * kTile : next + (ahead - tiles) * kTile;
    Tile(tile);
    Tile(tile + tiles * kTile);
  }
  static HWY_INLINE void Tile(const bf16* tile) {
    for (int64_t line = 0; line < kTile; line += 32) {
      _mm_prefetch(reinterpret_cast<const char*>(tile + line), _MM_HINT_T1);
    }
  }
};

// sums [rows, 32] = a block of rows times the panels b0 and b1. Tiles 4 and 5 hold x, 0 and 1 the
// sums of the first 16 rows, 2 and 3 those of the others.
template <bool kTwoTiles>
HWY_INLINE void MultiplyBlock(const FewRows& x, int64_t block, const bf16* b0, const bf16* b1,
                              int64_t tiles, const PairFetch& fetch, float* sums) {
  const bf16* const a0 = x.data + block * x.stride;
  const bf16* const a1 = a0 + kTileRows * x.stride;
  const int64_t a_bytes = x.stride * 2;
  DF_TILE_ZERO(0);
  DF_TILE_ZERO(1);
  if constexpr (kTwoTiles) {
    DF_TILE_ZERO(2);
    DF_TILE_ZERO(3);
  }
  for (int64_t t = 0; t < tiles; ++t) {
    DF_TILE_LOAD(4, a0 + t * kTileK, a_bytes);
    DF_TILE_LOAD(6, b0 + t * kTile, kTileRowBytes);
    DF_TILE_MULTIPLY(0, 4, 6);
    DF_TILE_LOAD(7, b1 + t * kTile, kTileRowBytes);
    DF_TILE_MULTIPLY(1, 4, 7);
    if constexpr (kTwoTiles) {
      DF_TILE_LOAD(5, a1 + t * kTileK, a_bytes);
      DF_TILE_MULTIPLY(2, 5, 6);
      DF_TILE_MULTIPLY(3, 5, 7);
    }
    fetch.Step(t);
  }
  DF_TILE_STORE(0, sums, kSumBytes);
  DF_TILE_STORE(1, sums + kTileRows, kSumBytes);
  if constexpr (kTwoTiles) {
    DF_TILE_STORE(2, sums + kSumPanel, kSumBytes);
    DF_TILE_STORE(3, sums + kSumPanel + kTileRows, kSumBytes);
  }
}

// Columns [32 * pair, 32 * pair + 32) of x W^T; `next` is read after it.
void MultiplyPair(const FewRows& x, const bf16* packed, int64_t tiles, int64_t pair,
                  const bf16* next, const Target& target) {
  const int64_t panels = DivUp(target.n, kTileRows);
  const bf16* const b0 = packed + 2 * pair * tiles * kTile;
  // A lone last panel is multiplied twice; the second result is not written.
  const bf16* const b1 = 2 * pair + 1 < panels ? b0 + tiles * kTile : b0;
  const int64_t rows = x.block_rows();
  amx::BeginTiles(static_cast<int>(rows));
  alignas(64) float sums[2 * kSumPanel];
  for (int64_t b = 0; b < x.blocks(); ++b) {
    const PairFetch fetch{b0, next, tiles, x.blocks(), b};
    const int64_t row = x.block(b);
    if (rows > kTileRows) {
      MultiplyBlock<true>(x, row, b0, b1, tiles, fetch, sums);
    } else {
      MultiplyBlock<false>(x, row, b0, b1, tiles, fetch, sums);
    }
    WithForm(target.form, [&]<Form kForm>() DF_AVX512_BF16_LAMBDA {
      OverlappedEpilogue<kForm>(sums, row, rows, pair * kBlock, 1, target).Finish();
    });
  }
}

// Rows of whole tiles of terms: x, or a copy that is padded with zeros.
FewRows PadRows(const Tensor& x) {
  const int64_t rows = x.rows(), in = x.cols(), padded = DivUp(in, kTileK) * kTileK;
  if (padded == in) return {x.As<const bf16>(), in, rows};
  thread_local Storage storage;
  if (storage.bytes() == 0 || storage.bytes() < static_cast<size_t>(rows * padded) * 2) {
    storage = Storage(static_cast<size_t>(rows * padded) * 2);
  }
  bf16* const to = static_cast<bf16*>(storage.data());
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(to + r * padded, x.As<const bf16>() + r * in, static_cast<size_t>(in) * 2);
    std::memset(static_cast<void*>(to + r * padded + in), 0, static_cast<size_t>(padded - in) * 2);
  }
  return {to, padded, rows};
}

}  // namespace
}  // namespace denseformer

DF_END_AVX512_BF16

namespace denseformer {
namespace {

class AmxFrozenWeight : public FrozenWeight {
 public:
  AmxFrozenWeight(int64_t out, int64_t in, std::byte* memory)
      : out_(out), in_(in), packed_(reinterpret_cast<bf16*>(memory)) {}

  void Pack(int64_t first, int64_t count, const float* rows, const float*) override {
    DF_CHECK(first % kBlock == 0 && first + count <= out_);
    for (int64_t r = 0; r < count; r += kBlock) {
      AmxPackBand(rows + r * in_, std::min(kBlock, count - r), in_, Panel((first + r) / kTileRows));
    }
  }

  // Tile [pairs of k][16 rows of W][2].
  void ReadRow(int64_t row, float* to) const override {
    const bf16* const panel = Panel(row / kTileRows);
    for (int64_t k = 0; k < in_; ++k) {
      to[k] = static_cast<float>(panel[(k / 2 * kTileRows + row % kTileRows) * 2 + k % 2]);
    }
  }

  std::span<const std::byte> Share(int part, int parts) const override {
    const bf16* const begin = Pair(pairs() * part / parts);
    const bf16* const end = Panel(std::min(panels(), 2 * (pairs() * (part + 1) / parts)));
    return std::as_bytes(std::span(begin, end));
  }

  void Forward(const Tensor& x, const GemmEpilogue& epilogue, const Tensor& y) const override {
    if (x.rows() > kMostFewRows || !epilogue.rotary_table.empty()) {
      return AmxForward(x, packed_, out_, epilogue, y);
    }
    const FewRows rows = PadRows(x);
    const Target target = MakeTarget(epilogue, y, out_);
    const int64_t grain = std::max<int64_t>(1, kGrainBytes / (2 * tiles() * kTile * 2));
    ParallelForShared(
        pairs(), grain, /*most=*/pairs(),
        [&](int64_t begin, int64_t end, const SharedPart& part) {
          for (int64_t pair = begin; pair < end; ++pair) {
            const std::byte* const next =
                pair + 1 == part.end ? NextStart(rows.rows, part) : nullptr;
            MultiplyPair(rows, packed_, tiles(), pair,
                         next != nullptr ? reinterpret_cast<const bf16*>(next) : Pair(pair + 1),
                         target);
          }
        },
        [&](const SharedPart& part) {
          amx::EndTiles();
          if (target.stream) _mm_sfence();
          PrefetchNext(rows.rows, part);
        });
  }

 private:
  int64_t tiles() const { return DivUp(in_, kTileK); }
  int64_t panels() const { return DivUp(out_, kTileRows); }
  int64_t pairs() const { return DivUp(out_, kBlock); }
  bf16* Pair(int64_t pair) const { return Panel(2 * pair); }
  bf16* Panel(int64_t panel) const { return packed_ + panel * tiles() * kTile; }

  int64_t out_, in_;
  bf16* packed_;
};

}  // namespace

const FrozenGemm kAmxFrozenGemm = {
    .supports = [](WeightFormat format) { return format == WeightFormat::kBF16; },
    .description = [](WeightFormat) { return std::string("own kernels on AMX"); },
    .bytes = [](int64_t out, int64_t in, WeightFormat) { return AmxPackedBytes(out, in); },
    .make = [](int64_t out, int64_t in, WeightFormat,
               std::byte* memory) -> std::unique_ptr<FrozenWeight> {
      return std::make_unique<AmxFrozenWeight>(out, in, memory);
    },
};

}  // namespace denseformer
