// Runs only where HasAmxGemm().
#include "kernels/gemm_amx.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "base/cpu.h"
#include "base/parallel.h"
#include "kernels/amx.h"
#include "kernels/gelu_fast.h"
#include "tensor/storage.h"

// By pragma and after the includes, so that inline functions of other headers keep to the baseline.
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16")
#pragma GCC optimize("O3")
// GCC 12 takes the undefined operands inside its own intrinsics for mistakes.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include "kernels/gemm_amx_pack-inl.h"

namespace denseformer {
namespace {

constexpr int64_t kLines = 16;  // cache lines of a tile
// Packed rows of a thread that stay in L2 while the right operand passes by.
constexpr int64_t kLeftBytes = int64_t{512} << 10;
// Products of more terms than this go through them in portions.
constexpr int64_t kMostTiles = 128, kPortionTiles = 32;
// Terms in one go where both operands are packed for each call.
constexpr int64_t kAccumulateTiles = 64;

// Brings what the next register blocks need from memory into L2 while this one is computed.
struct Prefetch {
  const bf16* from = nullptr;
  int64_t lines = 0;  // for each step along k

  void Rows() const {}
  void Step(int64_t t) const {
    for (int64_t i = 0; i < lines; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(from + (t * lines + i) * 32), _MM_HINT_T1);
    }
  }
};

// c [32, 32] (rows `stride` floats apart) = or += two left panels times two right panels of `tiles`
// tiles. `beside` does other work while the tile unit is busy; in small portions, as only so many
// instructions can wait for their turn.
template <class Beside>
inline void MultiplyBlock(const bf16* a0, const bf16* a1, const bf16* b0, const bf16* b1,
                          int64_t tiles, Beside&& beside, bool accumulate, float* c,
                          int64_t stride) {
  const int64_t bytes = stride * 4;
  if (accumulate) {
    _tile_loadd(0, c, bytes);
    _tile_loadd(1, c + kTileRows, bytes);
    _tile_loadd(2, c + kTileRows * stride, bytes);
    _tile_loadd(3, c + kTileRows * stride + kTileRows, bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t t = 0; t < tiles; ++t) {
    _tile_loadd(4, a0 + t * kTile, 64);
    _tile_loadd(6, b0 + t * kTile, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b1 + t * kTile, 64);
    _tile_dpbf16ps(1, 4, 7);
    beside.Rows();
    _tile_loadd(5, a1 + t * kTile, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    beside.Rows();
    beside.Step(t);
  }
  _tile_stored(0, c, bytes);
  _tile_stored(1, c + kTileRows, bytes);
  _tile_stored(2, c + kTileRows * stride, bytes);
  _tile_stored(3, c + kTileRows * stride + kTileRows, bytes);
}

// c [16, 32] = one left panel times two right panels: for a few rows, where reading the right
// operand is all that takes time.
template <class Beside>
inline void MultiplyRow(const bf16* a0, const bf16* b0, const bf16* b1, int64_t tiles,
                        Beside&& beside, float* c, int64_t stride) {
  _tile_zero(0);
  _tile_zero(1);
  for (int64_t t = 0; t < tiles; ++t) {
    _tile_loadd(4, a0 + t * kTile, 64);
    _tile_loadd(6, b0 + t * kTile, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b1 + t * kTile, 64);
    _tile_dpbf16ps(1, 4, 7);
    beside.Rows();
    beside.Step(t);
  }
  _tile_stored(0, c, stride * 4);
  _tile_stored(1, c + kTileRows, stride * 4);
}

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

// A finished block of up to 32 x 32 sums goes to y at (row, column), with the bias.
void WriteBlock(const float* sums, int64_t stride, int64_t rows, int64_t cols, const float* bias,
                const Tensor& y, int64_t row, int64_t column) {
  const int64_t n = y.cols();
  const __mmask16 low = FirstLanes(cols), high = FirstLanes(std::max<int64_t>(0, cols - 16));
  const __m512 bias_low = bias ? _mm512_maskz_loadu_ps(low, bias + column) : _mm512_setzero_ps();
  const __m512 bias_high =
      bias ? _mm512_maskz_loadu_ps(high, bias + column + 16) : _mm512_setzero_ps();
  for (int64_t r = 0; r < rows; ++r) {
    const __m512 a = _mm512_add_ps(_mm512_load_ps(sums + r * stride), bias_low);
    const __m512 b = _mm512_add_ps(_mm512_load_ps(sums + r * stride + 16), bias_high);
    const int64_t at = (row + r) * n + column;
    if (y.dtype() == DType::kF32) {
      _mm512_mask_storeu_ps(y.f32() + at, low, a);
      _mm512_mask_storeu_ps(y.f32() + at + 16, high, b);
    } else {
      _mm512_mask_storeu_epi16(y.As<bf16>() + at, FirstLanes32(cols),
                               (__m512i)_mm512_cvtne2ps_pbh(b, a));
    }
  }
}

// GELU of 16 values as gelu.cc computes it for bf16, to the same bits (erf-inl.h has the formulas).
inline __m512 Gelu(__m512 x) {
  const __m512 t = _mm512_min_ps(_mm512_abs_ps(x), _mm512_set1_ps(gelu_fast::kBound));
  __m512 h = _mm512_set1_ps(gelu_fast::kTail[0]);
  for (int i = 1; i < 7; ++i) h = _mm512_fmadd_ps(h, t, _mm512_set1_ps(gelu_fast::kTail[i]));
  const __m512 magic = _mm512_set1_ps(gelu_fast::kMagic), shifted = _mm512_sub_ps(magic, h);
  const __m512 r = _mm512_sub_ps(_mm512_sub_ps(magic, shifted), h);
  const __m512 scale = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(shifted), 23));
  __m512 p = _mm512_set1_ps(gelu_fast::kPower[0]);
  for (int i = 1; i < 5; ++i) p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(gelu_fast::kPower[i]));
  const __m512 tail = _mm512_mul_ps(t, _mm512_mul_ps(scale, p));
  return _mm512_sub_ps(_mm512_max_ps(_mm512_setzero_ps(), x), tail);
}

// A finished block of up to 32 x 32 sums whose GELU goes to (row, column) while the tile
// unit computes the next one.
class GeluBeside {
 public:
  GeluBeside() = default;
  GeluBeside(const float* sums, int64_t rows, int64_t cols, const AmxOutput& out, int64_t row,
             int64_t column, int64_t tiles)
      : sums_(sums), rows_(rows), n_(out.n), portion_(DivUp(kBlock, 2 * tiles)) {
    const int64_t at = row * n_ + column;
    gelu_ = out.gelu.As<bf16>() + at;
    mask_ = FirstLanes32(cols);
    if (out.bias == nullptr) return;
    bias_low_ = _mm512_maskz_loadu_ps(FirstLanes(cols), out.bias + column);
    bias_high_ =
        _mm512_maskz_loadu_ps(FirstLanes(std::max<int64_t>(0, cols - 16)), out.bias + column + 16);
  }

  void set_prefetch(const Prefetch& prefetch) { prefetch_ = prefetch; }
  void Step(int64_t t) const { prefetch_.Step(t); }
  void Rows() {
    for (const int64_t end = std::min(next_ + portion_, rows_); next_ < end; ++next_) Row(next_);
  }
  void Finish() {
    for (; next_ < rows_; ++next_) Row(next_);
  }

 private:
  // The sums are rounded before GELU, so that the bits are those of separate passes.
  inline __attribute__((always_inline)) void Row(int64_t r) const {
    const __m512 low = _mm512_add_ps(_mm512_load_ps(sums_ + r * kBlock), bias_low_);
    const __m512 high = _mm512_add_ps(_mm512_load_ps(sums_ + r * kBlock + 16), bias_high_);
    const __m512i y = (__m512i)_mm512_cvtne2ps_pbh(high, low);
    const __m512 gelu_low = Gelu(Expand(_mm512_castsi512_si256(y)));
    const __m512 gelu_high = Gelu(Expand(_mm512_extracti64x4_epi64(y, 1)));
    _mm512_mask_storeu_epi16(gelu_ + r * n_, mask_,
                             (__m512i)_mm512_cvtne2ps_pbh(gelu_high, gelu_low));
  }
  static __m512 Expand(__m256i half) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }

  const float* sums_ = nullptr;  // rows kBlock apart
  int64_t next_ = 0, rows_ = 0, n_ = 0, portion_ = 1;
  bf16* gelu_ = nullptr;
  __mmask32 mask_ = 0;
  __m512 bias_low_ = {}, bias_high_ = {};
  Prefetch prefetch_;
};

// What a thread computes: rows [row, row + rows) and panels [panel, panel + panels) of the right
// operand.
struct Part {
  int64_t row, rows, panel, panels;
};

// Rows of a left block for `tiles` tiles of k.
int64_t LeftRows(int64_t tiles, int64_t rows) {
  const int64_t most =
      std::max<int64_t>(kBlock, kLeftBytes / (tiles * kTileK * 2) / kBlock * kBlock);
  return std::min(most, DivUp(rows, kBlock) * kBlock);
}

// Packed left rows times panels [panel, panel + panels) of `right`, to rows [row, row + rows).
template <bool kGelu>
void MultiplyPanels(const bf16* left, int64_t tiles, const bf16* right, const AmxOutput& out,
                    const Part& part) {
  alignas(64) float sums[kGelu ? 2 : 1][kBlock * kBlock];  // of this block, of the one before
  int now = 0;
  GeluBeside gelu;
  const int64_t left_panels = DivUp(part.rows, kTileRows), blocks = DivUp(left_panels, 2);
  const int64_t end = part.panel + part.panels;
  for (int64_t panel = part.panel; panel < end; panel += 2) {
    const bf16* b0 = right + panel * tiles * kTile;
    // A lone last panel is multiplied twice; the second result is not written.
    const bf16* b1 = panel + 1 < end ? b0 + tiles * kTile : b0;
    const bf16* next = panel + 3 < end ? b0 + 2 * tiles * kTile : nullptr;
    const int64_t column = panel * kTileRows, cols = std::min(kBlock, out.n - column);
    for (int64_t p = 0; p < left_panels; p += 2) {
      const bf16* a0 = left + p * tiles * kTile;
      const Prefetch prefetch = ShareOfPanels(next, tiles, p / 2, blocks);
      const auto multiply = [&](auto& beside) {
        if (p + 1 < left_panels) {
          MultiplyBlock(a0, a0 + tiles * kTile, b0, b1, tiles, beside, false, sums[now], kBlock);
        } else {
          MultiplyRow(a0, b0, b1, tiles, beside, sums[now], kBlock);
        }
      };
      const int64_t row = part.row + p * kTileRows;
      const int64_t rows = std::min(kBlock, part.rows - p * kTileRows);
      if constexpr (kGelu) {
        gelu.set_prefetch(prefetch);
        multiply(gelu);
        gelu.Finish();
        gelu = GeluBeside(sums[now], rows, cols, out, row, column, tiles);
        now = 1 - now;
      } else {
        multiply(prefetch);
        WriteBlock(sums[now], kBlock, rows, cols, out.bias, out.y, row, column);
      }
    }
  }
  gelu.Finish();
}

// One part of x * right. The left rows are packed once and stay in L2.
void MultiplyPart(const Tensor& x, const bf16* right, const AmxOutput& out, const Part& part) {
  const int64_t k = x.cols(), tiles = DivUp(k, kTileK), block_rows = LeftRows(tiles, part.rows);
  thread_local Storage left_storage;
  bf16* left = Scratch<bf16>(left_storage, block_rows * tiles * kTileK);
  const amx::TileScope scope;
  for (int64_t row = part.row; row < part.row + part.rows; row += block_rows) {
    const int64_t rows = std::min(block_rows, part.row + part.rows - row);
    for (int64_t p = 0; p * kTileRows < rows; ++p) {
      PackLeftPanel(x.As<const bf16>() + (row + p * kTileRows) * k, k,
                    std::min(kTileRows, rows - p * kTileRows), k, left + p * tiles * kTile);
    }
    const Part now{row, rows, part.panel, part.panels};
    if (out.gelu.empty()) {
      MultiplyPanels<false>(left, tiles, right, out, now);
    } else {
      MultiplyPanels<true>(left, tiles, right, out, now);
    }
  }
}

// As MultiplyPart, for so many terms that not even a few packed rows of all of them stay in L2: a
// portion of the terms at a time, the sums of the rows wait in memory. The order of a sum is the
// same.
void MultiplyLongPart(const Tensor& x, const bf16* right, const AmxOutput& out, const Part& part) {
  const int64_t k = x.cols(), tiles = DivUp(k, kTileK);
  const int64_t columns = DivUp(part.panels, 2) * kBlock;
  const int64_t block_rows = LeftRows(kPortionTiles, part.rows);
  thread_local Storage left_storage, sums_storage;
  bf16* left = Scratch<bf16>(left_storage, block_rows * kPortionTiles * kTileK);
  float* sums = Scratch<float>(sums_storage, block_rows * columns);
  const amx::TileScope scope;
  for (int64_t row = part.row; row < part.row + part.rows; row += block_rows) {
    const int64_t rows = std::min(block_rows, part.row + part.rows - row);
    const int64_t left_panels = DivUp(rows, kBlock) * 2;
    for (int64_t first = 0; first < tiles; first += kPortionTiles) {
      const int64_t portion = std::min(kPortionTiles, tiles - first), term = first * kTileK;
      for (int64_t p = 0; p < left_panels; ++p) {
        const int64_t at = p * kTileRows;  // a panel past the last row is all zero
        PackLeftPanel(x.As<const bf16>() + (row + at) * k + term, k,
                      std::clamp<int64_t>(rows - at, 0, kTileRows),
                      std::min(portion * kTileK, k - term), left + p * portion * kTile);
      }
      for (int64_t q = 0; q < part.panels; q += 2) {
        const bf16* b0 = right + ((part.panel + q) * tiles + first) * kTile;
        const bf16* b1 = q + 1 < part.panels ? b0 + tiles * kTile : b0;
        for (int64_t p = 0; p < left_panels; p += 2) {
          const bf16* a0 = left + p * portion * kTile;
          MultiplyBlock(a0, a0 + portion * kTile, b0, b1, portion, Prefetch(), first > 0,
                        sums + p * kTileRows * columns + q * kTileRows, columns);
        }
      }
    }
    for (int64_t q = 0; q < part.panels; q += 2) {
      const int64_t column = (part.panel + q) * kTileRows;
      WriteBlock(sums + q * kTileRows, columns, rows, std::min(kBlock, out.n - column), out.bias,
                 out.y, row, column);
    }
  }
}

// One register block of c += left * right at (row, column), where it may reach over the edge of c.
void AccumulateEdge(const bf16* a0, const bf16* a1, const bf16* b0, const bf16* b1, int64_t tiles,
                    int64_t rows, int64_t cols, float* to, int64_t stride) {
  alignas(64) float sums[kBlock * kBlock];
  MultiplyBlock(a0, a1, b0, b1, tiles, Prefetch(), false, sums, kBlock);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < cols; ++i) to[r * stride + i] += sums[r * kBlock + i];
  }
}

// Left panels [first, last) of c += left * right.
void AccumulatePart(const bf16* left, const bf16* right, int64_t tiles, int64_t first, int64_t last,
                    const Tensor& c) {
  const int64_t m = c.rows(), n = c.cols(), right_panels = DivUp(n, kTileRows);
  const int64_t block_panels = LeftRows(tiles, m) / kTileRows;
  const amx::TileScope scope;
  for (int64_t begin = first; begin < last; begin += block_panels) {
    const int64_t end = std::min(last, begin + block_panels);
    for (int64_t q = 0; q < right_panels; q += 2) {
      const bf16* b0 = right + q * tiles * kTile;
      const bf16* b1 = q + 1 < right_panels ? b0 + tiles * kTile : b0;
      const bf16* next = q + 3 < right_panels ? b0 + 2 * tiles * kTile : nullptr;
      for (int64_t p = begin; p < end; p += 2) {
        const bf16* a0 = left + p * tiles * kTile;
        const bf16* a1 = p + 1 < end ? a0 + tiles * kTile : a0;
        const int64_t row = p * kTileRows, column = q * kTileRows;
        const int64_t rows = std::min({kBlock, m - row, (end - p) * kTileRows}),
                      cols = std::min(kBlock, n - column);
        float* to = c.f32() + row * n + column;
        if (rows < kBlock || cols < kBlock) {
          AccumulateEdge(a0, a1, b0, b1, tiles, rows, cols, to, n);
        } else {
          const Prefetch prefetch =
              ShareOfPanels(next, tiles, (p - begin) / 2, DivUp(end - begin, 2));
          MultiplyBlock(a0, a1, b0, b1, tiles, prefetch, true, to, n);
        }
      }
    }
  }
}

}  // namespace

bool HasAmxGemm() { return GetCpuLevel() == CpuLevel::kAmx; }

int64_t AmxPackedSize(int64_t n, int64_t k) {
  return DivUp(n, kTileRows) * DivUp(k, kTileK) * kTile;
}

void AmxPack(const float* w, int64_t out, int64_t in, bf16* forward, bf16* backward) {
  const int64_t in_tiles = DivUp(in, kTileK), out_tiles = DivUp(out, kTileK);
  // Blocks of 32 x 32: both copies are made from one reading of the master.
  ParallelFor(out_tiles, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t o = begin; o < end; ++o) {
      for (int64_t i = 0; i < in_tiles; ++i) {
        const float* block = w + o * kTileK * in + i * kTileK;
        const int64_t rows = std::min(kTileK, out - o * kTileK),
                      cols = std::min(kTileK, in - i * kTileK);
        PrefetchRows(block + kPackAhead, rows, in);
        for (int64_t half = 0; half * kTileRows < rows; ++half) {
          __m512i tile[16];
          for (int64_t r = 0; r < kTileRows; ++r) {
            const int64_t row = half * kTileRows + r;
            tile[r] = row < rows ? LoadRounded(block + row * in, cols) : _mm512_setzero_si512();
          }
          Transpose16(tile);
          StoreTile(tile, forward + ((2 * o + half) * in_tiles + i) * kTile);
        }
        if (backward == nullptr) continue;
        for (int64_t half = 0; half * kTileRows < cols; ++half) {
          __m512i tile[16];
          const int64_t column = half * kTileRows;
          LoadPairs(block + column, in, rows, std::min(kTileRows, cols - column), tile);
          StoreTile(tile, backward + ((2 * i + half) * out_tiles + o) * kTile);
        }
      }
    }
  });
}

void AmxMultiply(const Tensor& x, const bf16* right, const AmxOutput& out) {
  const int64_t m = x.rows(), pairs = DivUp(out.n, kBlock), panels = DivUp(out.n, kTileRows);
  const bool long_sums = DivUp(x.cols(), kTileK) > kMostTiles && out.gelu.empty();
  // Rows are shared out where there are enough of them; else columns.
  if (m >= 2 * kBlock * NumThreads()) {
    ParallelFor(DivUp(m, kBlock), 1, [&](int64_t begin, int64_t end, int) {
      (long_sums ? MultiplyLongPart : MultiplyPart)(
          x, right, out, {begin * kBlock, std::min(m, end * kBlock) - begin * kBlock, 0, panels});
    });
  } else {
    ParallelFor(pairs, 1, [&](int64_t begin, int64_t end, int) {
      MultiplyPart(x, right, out, {0, m, 2 * begin, std::min(panels, 2 * end) - 2 * begin});
    });
  }
}

void AmxAccumulateTransposed(const Tensor& a, const Tensor& b, const Tensor& c) {
  const int64_t rows = a.rows(), m = c.rows(), n = c.cols();
  const int64_t left_panels = DivUp(m, kTileRows), right_panels = DivUp(n, kTileRows);
  const int64_t most = kAccumulateTiles * kTileK;
  thread_local Storage left_storage, right_storage;
  bf16* left = Scratch<bf16>(left_storage, AmxPackedSize(m, std::min(rows, most)));
  bf16* right = Scratch<bf16>(right_storage, AmxPackedSize(n, std::min(rows, most)));
  for (int64_t row = 0; row < rows; row += most) {
    const int64_t k = std::min(most, rows - row), tiles = DivUp(k, kTileK);
    const bf16* a_rows = a.As<const bf16>() + row * m;
    const bf16* b_rows = b.As<const bf16>() + row * n;
    ParallelFor(left_panels + right_panels, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t p = begin; p < end; ++p) {
        if (p < left_panels) {
          PackLeftTransposedPanel(a_rows, k, m, p, left + p * tiles * kTile);
        } else {
          PackRightPanel(b_rows, k, n, p - left_panels, right + (p - left_panels) * tiles * kTile);
        }
      }
    });
    ParallelFor(DivUp(left_panels, 2), 1, [&](int64_t begin, int64_t end, int) {
      AccumulatePart(left, right, tiles, 2 * begin, std::min(left_panels, 2 * end), c);
    });
  }
}

}  // namespace denseformer

#pragma GCC pop_options
