// The GEMM backend on AMX tiles, for bf16.
//
// Operands are packed into tiles of 1 KB, as the tile registers hold them:
//   left   [M / 16][K / 32][16 rows][32 k]
//   right  [N / 16][K / 32][16 pairs of k][16 columns][2]
// padded with zeros to whole tiles. A GEMM keeps up to 3 x 2 result tiles in registers and walks
// along k; every result element is the sum over k in one fixed order, so the bits do not depend on
// the number of threads.
#include "kernels/gemm/gemm_amx.h"

#include <immintrin.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "base/parallel.h"
#include "kernels/amx-inl.h"
#include "kernels/amx.h"
#include "kernels/gemm/backend.h"
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

constexpr int64_t kLines = 16;  // cache lines of a tile
// Packed rows of a thread that stay in L2 while the right operand passes by.
constexpr int64_t kLeftBytes = int64_t{768} << 10;
// Left panels of a register block: as many as there are registers for.
constexpr int64_t kMostPanels = 3;
// GEMMs of more terms than this go through them in portions.
constexpr int64_t kMostTiles = 128, kPortionTiles = 32;
// Terms in one go where both operands are packed for each call.
constexpr int64_t kTransposedTiles = 64;

// The share of the two panels at `next` that block number `number` of `blocks` fetches.
Prefetch ShareOfPanels(const bf16* next, int64_t tiles, int64_t number, int64_t blocks) {
  if (next == nullptr) return {};
  const int64_t lines = DivUp(2 * kLines, blocks);
  const int64_t first = number * lines * tiles;
  if (first >= 2 * kLines * tiles) return {};
  return {next + first * 32, lines};
}

// Scratch memory of this thread that only grows.
template <class T>
T* Scratch(Storage& storage, int64_t count) {
  if (storage.bytes() < static_cast<size_t>(count) * sizeof(T)) {
    storage = Storage(static_cast<size_t>(count) * sizeof(T));
  }
  return static_cast<T*>(storage.data());
}

// What a thread computes: rows [row, row + rows) and panels [panel, panel + panels) of the right
// operand.
struct Part {
  int64_t row, rows, panel, panels;
};

// A right operand, or a portion of its terms.
struct Right {
  const bf16* data;
  int64_t tiles;   // of a panel, in this GEMM
  int64_t stride;  // tiles from panel to panel
};

// Rows of a left block for `tiles` tiles of k: blocks of about equal size that stay in L2.
int64_t LeftRows(int64_t tiles, int64_t rows) {
  const int64_t most =
      std::max<int64_t>(kBlock, kLeftBytes / (tiles * kTileK * 2) / kBlock * kBlock);
  return DivUp(DivUp(rows, DivUp(rows, most)), kBlock) * kBlock;
}

// Packed left rows times panels [panel, panel + panels) of `right`, to rows [row, row + rows).
template <Form kForm>
void MultiplyPanels(const bf16* left, const Right& right, const Target& target, const Part& part) {
  alignas(64) float sums[2][kMostPanels * kSumPanel];  // of this block, of the one before
  int now = 0;
  OverlappedEpilogue<kForm> epilogue;
  const int64_t tiles = right.tiles, left_panels = DivUp(part.rows, kTileRows);
  const int64_t blocks = DivUp(left_panels, kMostPanels), end = part.panel + part.panels;
  for (int64_t panel = part.panel; panel < end; panel += 2) {
    const bf16* b0 = right.data + panel * right.stride * kTile;
    // A lone last panel is multiplied twice; the second result is not written.
    const bf16* b1 = panel + 1 < end ? b0 + right.stride * kTile : b0;
    const bool fetch = panel + 3 < end && right.stride == tiles;
    const bf16* next = fetch ? b0 + 2 * tiles * kTile : nullptr;
    for (int64_t p = 0, number = 0; p < left_panels; ++number) {
      const int64_t remaining = left_panels - p;
      const int64_t panels = remaining == 4 ? 2 : std::min(kMostPanels, remaining);
      const bf16* a0 = left + p * tiles * kTile;
      epilogue.set_prefetch(ShareOfPanels(next, tiles, number, blocks));
      if (panels == 3) {
        MultiplyTriple(a0, b0, b1, tiles, epilogue, sums[now]);
      } else if (panels == 2) {
        MultiplyPair(a0, b0, b1, tiles, epilogue, sums[now]);
      } else {
        MultiplyPanel(a0, b0, b1, tiles, epilogue, sums[now]);
      }
      epilogue.Finish();
      const int64_t rows = std::min(panels * kTileRows, part.rows - p * kTileRows);
      epilogue = OverlappedEpilogue<kForm>(sums[now], part.row + p * kTileRows, rows,
                                           panel * kTileRows, 2 * tiles, target);
      now = 1 - now;
      p += panels;
    }
  }
  epilogue.Finish();
}

void MultiplyPacked(const bf16* left, const Right& right, const Target& target, const Part& part) {
  WithForm(target.form, [&]<Form kForm>() { MultiplyPanels<kForm>(left, right, target, part); });
}

// Terms [term, term + terms) of rows [row, row + rows) of x as left panels.
void PackLeft(const Tensor& x, int64_t row, int64_t rows, int64_t term, int64_t terms, bf16* left) {
  const int64_t k = x.cols(), tiles = DivUp(terms, kTileK);
  for (int64_t p = 0; p * kTileRows < rows; ++p) {
    PackLeftPanel(x.As<const bf16>() + (row + p * kTileRows) * k + term, k,
                  std::min(kTileRows, rows - p * kTileRows), terms, left + p * tiles * kTile);
  }
}

// One part of x * right. The left rows are packed once and stay in L2.
void MultiplyPart(const Tensor& x, const bf16* right, const Target& target, const Part& part) {
  const int64_t tiles = DivUp(x.cols(), kTileK), block_rows = LeftRows(tiles, part.rows);
  thread_local Storage left_storage;
  bf16* left = Scratch<bf16>(left_storage, block_rows * tiles * kTileK);
  const amx::TileScope scope;
  for (int64_t row = part.row; row < part.row + part.rows; row += block_rows) {
    const int64_t rows = std::min(block_rows, part.row + part.rows - row);
    PackLeft(x, row, rows, 0, x.cols(), left);
    MultiplyPacked(left, {right, tiles, tiles}, target, {row, rows, part.panel, part.panels});
  }
}

// As MultiplyPart, for so many terms that not even a few packed rows of all of them stay in L2: a
// portion of the terms at a time, the sums of the rows wait in memory.
void MultiplyLongPart(const Tensor& x, const bf16* right, const Target& target, const Part& part) {
  const int64_t k = x.cols(), tiles = DivUp(k, kTileK), columns = part.panels * kTileRows;
  const int64_t block_rows = LeftRows(kPortionTiles, part.rows);
  thread_local Storage left_storage, sums_storage;
  bf16* left = Scratch<bf16>(left_storage, block_rows * kPortionTiles * kTileK);
  float* sums = Scratch<float>(sums_storage, block_rows * columns);
  const amx::TileScope scope;
  for (int64_t row = part.row; row < part.row + part.rows; row += block_rows) {
    const int64_t rows = std::min(block_rows, part.row + part.rows - row);
    const Plane<float> waiting{sums, columns, row, part.panel * kTileRows};
    for (int64_t first = 0; first < tiles; first += kPortionTiles) {
      const int64_t portion = std::min(kPortionTiles, tiles - first), term = first * kTileK;
      PackLeft(x, row, rows, term, std::min(portion * kTileK, k - term), left);
      Target to = target;
      if (first + portion < tiles) to = {.form = Form::kF32, .n = target.n, .f32 = waiting};
      if (first > 0) to.add = {sums, columns, row, part.panel * kTileRows};
      MultiplyPacked(left, {right + first * kTile, portion, tiles}, to,
                     {row, rows, part.panel, part.panels});
    }
  }
}

// Left panels [first, last) of a^T b, the left rows packed where they are used.
void MultiplyTransposedPart(const bf16* a, int64_t k, int64_t m, const Right& right,
                            const Target& target, int64_t first, int64_t last) {
  const int64_t block_panels = LeftRows(right.tiles, (last - first) * kTileRows) / kTileRows;
  thread_local Storage left_storage;
  bf16* left = Scratch<bf16>(left_storage, block_panels * right.tiles * kTile);
  const amx::TileScope scope;
  for (int64_t panel = first; panel < last; panel += block_panels) {
    const int64_t panels = std::min(block_panels, last - panel), row = panel * kTileRows;
    PackLeftTransposed(a, k, m, panel, panels, left);
    MultiplyPacked(left, right, target,
                   {row, std::min(panels * kTileRows, m - row), 0, DivUp(target.n, kTileRows)});
  }
}

// Elements of a packed matrix of n columns (or rows) and k terms.
int64_t PackedSize(int64_t n, int64_t k) { return DivUp(n, kTileRows) * DivUp(k, kTileK) * kTile; }

// Packs rows [band * kBlock, (band + 1) * kBlock) of w [out, in] fp32, as far as there are that
// many, for the right operand of x w^T: PackedSize(out, in) elements.
void PackBand(const Tensor& w, int64_t band, bf16* packed) {
  static_assert(kBlock == kTileK);
  const int64_t in = w.cols(), tiles = DivUp(in, kTileK);
  const int64_t rows = std::min(kTileK, w.rows() - band * kTileK);
  for (int64_t i = 0; i < tiles; ++i) {
    const float* block = w.f32() + band * kTileK * in + i * kTileK;
    const int64_t cols = std::min(kTileK, in - i * kTileK);
    PrefetchRows(block + kPackAhead, rows, in);
    for (int64_t half = 0; half * kTileRows < rows; ++half) {
      __m512i tile[16];
      for (int64_t r = 0; r < kTileRows; ++r) {
        const int64_t row = half * kTileRows + r;
        tile[r] = row < rows ? LoadRounded(block + row * in, cols) : _mm512_setzero_si512();
      }
      Transpose16(tile);
      StoreTile(tile, packed + ((2 * band + half) * tiles + i) * kTile);
    }
  }
}

// x [M, k] times `right` [k, n] to `target`.
void Multiply(const Tensor& x, const bf16* right, const Target& target) {
  const int64_t m = x.rows(), pairs = DivUp(target.n, kBlock), panels = DivUp(target.n, kTileRows);
  const bool long_sums = DivUp(x.cols(), kTileK) > kMostTiles;
  const auto run = [&](const Part& part) {
    (long_sums ? MultiplyLongPart : MultiplyPart)(x, right, target, part);
    if (target.stream) _mm_sfence();
  };
  // Rows are shared out where there are enough of them; else columns.
  if (m >= 2 * kBlock * NumThreads()) {
    ParallelFor(DivUp(m, kBlock), 1, [&](int64_t begin, int64_t end, int) {
      run({begin * kBlock, std::min(m, end * kBlock) - begin * kBlock, 0, panels});
    });
  } else {
    ParallelFor(pairs, 1, [&](int64_t begin, int64_t end, int) {
      run({0, m, 2 * begin, std::min(panels, 2 * end) - 2 * begin});
    });
  }
}

// dx [M, in] = dy [M, out] w, from w as PackBand packs it.
void MultiplyTransposedWeight(const Tensor& dy, const bf16* packed, const Tensor& dx) {
  const int64_t out = dy.cols(), in = dx.cols();
  thread_local Storage transposed_storage;
  bf16* transposed = Scratch<bf16>(transposed_storage, PackedSize(in, out));
  ParallelFor(DivUp(out, kTileK), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) TransposeTiles(packed, out, in, t, transposed);
    _mm_sfence();
  });
  Multiply(dy, transposed, MakeTarget({}, dx, in));
}

// c [m, n] fp32 = a^T b, or c + a^T b with `add`; a [rows, m], b [rows, n] bf16. *squares, where it
// is not null: the sum of the squares of c.
void MultiplyTransposed(const Tensor& a, const Tensor& b, const Tensor& c, bool add,
                        double* squares) {
  const int64_t rows = a.rows(), m = c.rows(), n = c.cols();
  const int64_t left_panels = DivUp(m, kTileRows), right_panels = DivUp(n, kTileRows);
  const int64_t most = kTransposedTiles * kTileK;
  thread_local Storage right_storage;
  bf16* packed = Scratch<bf16>(right_storage, PackedSize(n, std::min(rows, most)));
  Target target{.n = n, .f32 = {c.f32(), n}, .stream = CanStream(c.raw(), m, n * 4)};
  // Squares of a panel of rows each, so that the threads do not matter.
  thread_local Storage squares_storage;
  const std::span<double> parts(Scratch<double>(squares_storage, left_panels * kTileRows),
                                static_cast<size_t>(left_panels * kTileRows));
  std::fill(parts.begin(), parts.end(), 0.0);
  for (int64_t row = 0; row < rows; row += most) {
    const int64_t k = std::min(most, rows - row), tiles = DivUp(k, kTileK);
    const bf16* a_rows = a.As<const bf16>() + row * m;
    const bf16* b_rows = b.As<const bf16>() + row * n;
    ParallelFor(right_panels, 1, [&](int64_t begin, int64_t end, int) {
      PackRight(b_rows, k, n, begin, end - begin, packed + begin * tiles * kTile);
    });
    if (add || row > 0) target.add = {c.f32(), n};
    if (row + k == rows && squares != nullptr) {
      target.form = Form::kF32Squared;
      target.squares = parts.data();
    }
    ParallelFor(DivUp(left_panels, 2), 1, [&](int64_t begin, int64_t end, int) {
      MultiplyTransposedPart(a_rows, k, m, {packed, tiles, tiles}, target, 2 * begin,
                             std::min(left_panels, 2 * end));
      if (target.stream) _mm_sfence();
    });
  }
  if (squares != nullptr) *squares = std::accumulate(parts.begin(), parts.end(), 0.0);
}

}  // namespace
}  // namespace denseformer

DF_END_AVX512_BF16

namespace denseformer {

size_t AmxPackedBytes(int64_t out, int64_t in) {
  return static_cast<size_t>(PackedSize(out, in)) * sizeof(bf16);
}

void AmxPackBand(const float* rows, int64_t count, int64_t in, bf16* band) {
  static_assert(kFrozenRows == kBlock);
  DF_CHECK(count <= kBlock);
  PackBand(Tensor(const_cast<float*>(rows), {count, in}), 0, band);
}

void AmxForward(const Tensor& x, const bf16* packed, int64_t out, const GemmEpilogue& epilogue,
                const Tensor& y) {
  if (epilogue.rotary_table.empty() || epilogue.rotary_table.cols() % kBlock == 0) {
    Multiply(x, packed, MakeTarget(epilogue, y, out));
    return;
  }
  // A register block would hold parts of two heads.
  Multiply(x, packed, MakeTarget({.bias = epilogue.bias}, y, out));
  RunEpiloguePasses(epilogue, y);
}

namespace {

size_t PackedBytes(int64_t out, int64_t in, DType) { return AmxPackedBytes(out, in); }

class AmxWeight : public GemmWeight {
 public:
  explicit AmxWeight(const Tensor& master)
      : master_(master), packed_(AmxPackedBytes(master.rows(), master.cols())) {}

  void Change(FunctionRef<void(int64_t first, int64_t last)> change) override {
    const int64_t rows = master_.rows();
    ParallelFor(DivUp(rows, kBlock), 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t band = begin; band < end; ++band) {
        change(band * kBlock, std::min(rows, (band + 1) * kBlock));
        PackBand(master_, band, packed());
      }
    });
  }

  void Forward(const Tensor& x, const GemmEpilogue& epilogue, const Tensor& y) const override {
    AmxForward(x, packed(), master_.rows(), epilogue, y);
  }

  void BackwardInput(const Tensor& dy, const Tensor& dx) const override {
    MultiplyTransposedWeight(dy, packed(), dx);
  }

 private:
  bf16* packed() const { return static_cast<bf16*>(packed_.data()); }

  Tensor master_;
  Storage packed_;  // the right operand of x W^T
};

}  // namespace

constinit extern const GemmBackend kAmxGemm = {
    .name = "amx",
    .requirements = "bf16 and a CPU with AMX",
    .available =
        [](DType compute, CpuFeatures cpu) {
          return compute == DType::kBF16 && cpu.Has(CpuFeature::kAmxBf16);
        },
    .description = [] { return std::string("own kernels on AMX"); },
    .packed_bytes = PackedBytes,
    .transposed_bytes = [](int64_t out, int64_t in,
                           DType compute) { return PackedBytes(in, out, compute); },
    .pack = [](const Tensor& master, DType) -> std::unique_ptr<GemmWeight> {
      return std::make_unique<AmxWeight>(master);
    },
    .backward_weight = MultiplyTransposed,
    .frozen = &kAmxFrozenGemm,
};

}  // namespace denseformer
