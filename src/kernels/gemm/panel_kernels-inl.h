// The inner loops of panel_run.cc, for every SIMD target. A panel is 32 rows of W; the sums of up
// to Step::kMostRows rows of x with half a panel or all of it stay in registers while the loop
// walks along the terms. Each result has one chain of additions, in the order of the terms:
//   fp32   s += x_k w_k
//   bf16   s += x_k w_k for k odd, then k even, of each pair: what the dot product instruction does
//   int8   exact sums of 128 terms, then s += scale * sum
// so the number of rows in a block does not change any bit.
#if defined(DENSEFORMER_KERNELS_GEMM_PANEL_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DENSEFORMER_KERNELS_GEMM_PANEL_KERNELS_INL_H_
#undef DENSEFORMER_KERNELS_GEMM_PANEL_KERNELS_INL_H_
#else
#define DENSEFORMER_KERNELS_GEMM_PANEL_KERNELS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>

#include "kernels/gemm/gemm_panels.h"
#include "kernels/simd.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using PanelTag = hn::CappedTag<float, 16>;
using PanelTag32 = hn::Rebind<uint32_t, PanelTag>;
using PanelTagI32 = hn::Rebind<int32_t, PanelTag>;
using PanelVec = hn::Vec<PanelTag>;
using PanelVec32 = hn::Vec<PanelTag32>;
using PanelVecI32 = hn::Vec<PanelTagI32>;
inline constexpr size_t kPanelLanes = hn::MaxLanes(PanelTag());
// Vectors of a panel that are summed side by side, and the columns they hold.
inline constexpr size_t kPanelVectors = 2;
inline constexpr size_t kPanelStep = kPanelVectors * kPanelLanes;
// Rows of x whose sums fit into the registers beside `others` vectors. With 32 registers 12 rows
// are enough for any step.
constexpr size_t MostPanelRows(size_t others) {
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
  return 12;
#else
  return (16 - others) / kPanelVectors;
#endif
}

// The four bytes at `from`, whatever they are.
HWY_INLINE uint32_t LoadWord(const std::byte* from) {
  uint32_t word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

// One step along the terms: sum [kRows][kPanelVectors] += what `Step` makes of a word of x, which
// takes kInputBytes, and a vector of words of W; kMostRows is the most that kRows may be.
struct WordStep {
  static constexpr int64_t kInputBytes = 4;
};

struct F32Step : WordStep {
  static constexpr size_t kMostRows = MostPanelRows(/*others=*/kPanelVectors + 1);
  static HWY_INLINE PanelVec Add(PanelVec sum, PanelVec32 w, const std::byte* x) {
    const PanelTag d;
    return hn::MulAdd(hn::BitCast(d, w), hn::BitCast(d, hn::Set(PanelTag32(), LoadWord(x))), sum);
  }
};

// x as pairs of fp32 (SpreadInput): a broadcast from memory takes no slot of the multipliers, one
// of a word that was shifted or masked does.
struct Bf16Step {
  static constexpr int64_t kInputBytes = 8;
  static constexpr size_t kMostRows = MostPanelRows(/*others=*/2 * kPanelVectors + 1);
  static HWY_INLINE PanelVec Add(PanelVec sum, PanelVec32 w, const std::byte* x) {
    const PanelTag d;
    const PanelTag32 d32;
    const auto odd = hn::BitCast(d, hn::And(w, hn::Set(d32, 0xffff0000u)));
    const auto even = hn::BitCast(d, hn::ShiftLeft<16>(w));
    sum = hn::MulAdd(odd, hn::BitCast(d, hn::Set(d32, LoadWord(x))), sum);
    return hn::MulAdd(even, hn::BitCast(d, hn::Set(d32, LoadWord(x + 4))), sum);
  }
};

// w holds 4 unsigned bytes, x 4 signed ones.
struct Int8Step : WordStep {
  static constexpr size_t kMostRows = MostPanelRows(/*others=*/4 * kPanelVectors);
  static HWY_INLINE PanelVecI32 Add(PanelVecI32 sum, PanelVec32 w, const std::byte* from) {
    const uint32_t x = LoadWord(from);
    const PanelTagI32 d;
    const PanelTag32 d32;
    const auto byte = hn::Set(d32, 0xff);
    const auto term = [&](PanelVec32 part, int shift) HWY_ATTR {
      const int32_t factor = static_cast<int8_t>(static_cast<uint8_t>(x >> shift));
      return hn::Mul(hn::BitCast(d, part), hn::Set(d, factor));
    };
    sum = hn::Add(sum, term(hn::And(w, byte), 0));
    sum = hn::Add(sum, term(hn::And(hn::ShiftRight<8>(w), byte), 8));
    sum = hn::Add(sum, term(hn::And(hn::ShiftRight<16>(w), byte), 16));
    return hn::Add(sum, term(hn::ShiftRight<24>(w), 24));
  }
};

#if HWY_TARGET <= HWY_AVX3
// The compiler's flags for this target do not name these instructions, hence by hand; where the CPU
// lacks them, they are not called.
struct Bf16DotStep : WordStep {
  static constexpr size_t kMostRows = MostPanelRows(/*others=*/kPanelVectors + 1);
  static HWY_INLINE PanelVec Add(PanelVec sum, PanelVec32 w, const std::byte* x) {
    const PanelVec32 pair = hn::Set(PanelTag32(), LoadWord(x));
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(w.raw), "v"(pair.raw));
    return sum;
  }
};
struct Int8DotStep : WordStep {
  static constexpr size_t kMostRows = MostPanelRows(/*others=*/kPanelVectors + 1);
  static HWY_INLINE PanelVecI32 Add(PanelVecI32 sum, PanelVec32 w, const std::byte* x) {
    const PanelVec32 four = hn::Set(PanelTag32(), LoadWord(x));
    asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(w.raw), "v"(four.raw));
    return sum;
  }
};
#elif HWY_TARGET == HWY_AVX2
// 16-bit products of even and odd bytes, added in pairs. x as 16-bit integers (StoreTerms): the
// even two of a word, then the odd two.
struct Int8PairStep {
  static constexpr int64_t kInputBytes = 8;
  static constexpr size_t kMostRows = MostPanelRows(/*others=*/3 * kPanelVectors);
  static HWY_INLINE PanelVecI32 Add(PanelVecI32 sum, PanelVec32 w, const std::byte* x) {
    const PanelTagI32 d;
    const PanelTag32 d32;
    const auto low = hn::Set(d32, 0x00ff00ff);
    const auto even = hn::Set(d32, LoadWord(x)), odd = hn::Set(d32, LoadWord(x + 4));
    PanelVecI32 products = hn::Zero(d);
    products.raw = _mm256_madd_epi16(hn::And(w, low).raw, even.raw);
    sum = hn::Add(sum, products);
    products.raw = _mm256_madd_epi16(_mm256_srli_epi16(w.raw, 8), odd.raw);
    return hn::Add(sum, products);
  }
};
#endif

// Adds `words` steps to the sums of kRows rows, from column `column` of the panel on.
template <class Step, size_t kRows, class V>
HWY_INLINE void AddWords(const PanelBlock& b, int64_t first, int64_t words, size_t column,
                         V (&sum)[kRows][kPanelVectors]) {
  const PanelTag32 d;
  const uint32_t* w = reinterpret_cast<const uint32_t*>(b.panel) + first * kPanelRows + column;
  const std::byte* x = b.x + first * Step::kInputBytes;
  const std::byte* fetch = b.fetch + first * b.fetch_step;
  for (int64_t k = 0; k < words; ++k, w += kPanelRows, x += Step::kInputBytes) {
    const auto w0 = hn::Load(d, w), w1 = hn::Load(d, w + kPanelLanes);
    if (column == 0) {
      __builtin_prefetch(fetch, 0, /*locality=*/2);
      __builtin_prefetch(fetch + b.fetch_step / 2, 0, /*locality=*/2);
      fetch += b.fetch_step;
    }
    for (size_t r = 0; r < kRows; ++r) {
      const std::byte* const word = x + static_cast<int64_t>(r) * b.x_stride;
      sum[r][0] = Step::Add(sum[r][0], w0, word);
      sum[r][1] = Step::Add(sum[r][1], w1, word);
    }
  }
}

// The sums of row `row` before this block, from column `column` on.
HWY_INLINE void LoadSums(const PanelBlock& b, size_t row, size_t column,
                         PanelVec (&sum)[kPanelVectors]) {
  const PanelTag d;
  for (size_t v = 0; v < kPanelVectors; ++v) {
    sum[v] =
        b.add ? hn::Load(d, b.sums + row * kPanelRows + column + v * kPanelLanes) : hn::Zero(d);
  }
}

// Sums in fp32 all along: fp32 and bf16.
template <class Step, size_t kRows>
HWY_NOINLINE void FloatBlock(const PanelBlock& b) {
  const PanelTag d;
  for (size_t column = 0; column < kPanelRows; column += kPanelStep) {
    PanelVec sum[kRows][kPanelVectors];
    for (size_t r = 0; r < kRows; ++r) LoadSums(b, r, column, sum[r]);
    AddWords<Step, kRows>(b, 0, b.words, column, sum);
    for (size_t r = 0; r < kRows; ++r) {
      hn::Store(sum[r][0], d, b.sums + r * kPanelRows + column);
      hn::Store(sum[r][1], d, b.sums + r * kPanelRows + column + kPanelLanes);
    }
  }
}

// Exact sums of a group of terms, then fp32.
template <class Step, size_t kRows>
HWY_NOINLINE void Int8Block(const PanelBlock& block) {
  const PanelTag d;
  const PanelTagI32 di;
  const PanelBlock b = block;  // or it would be read again after every store
  const int64_t groups = Int8Groups(b.words);
  for (size_t column = 0; column < kPanelRows; column += kPanelStep) {
    PanelVec total[kRows][kPanelVectors];
    for (size_t r = 0; r < kRows; ++r) LoadSums(b, r, column, total[r]);
    for (int64_t g = 0; g < groups; ++g) {
      PanelVecI32 sum[kRows][kPanelVectors];
      const Int8Group* const group = b.groups + g;
      for (size_t r = 0; r < kRows; ++r) {
        sum[r][0] = sum[r][1] =
            hn::Set(di, group[static_cast<int64_t>(r) * b.groups_stride].offset);
      }
      const int64_t first = g * kInt8GroupWords;
      if (first + kInt8GroupWords <= b.words) {
        AddWords<Step, kRows>(b, first, kInt8GroupWords, column, sum);
      } else {
        AddWords<Step, kRows>(b, first, b.words - first, column, sum);
      }
      for (size_t r = 0; r < kRows; ++r) {
        const auto scale = hn::Set(d, group[static_cast<int64_t>(r) * b.groups_stride].scale);
        for (size_t v = 0; v < kPanelVectors; ++v) {
          total[r][v] = hn::MulAdd(hn::ConvertTo(d, sum[r][v]), scale, total[r][v]);
        }
      }
    }
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t v = 0; v < kPanelVectors; ++v) {
        hn::Store(total[r][v], d, b.sums + r * kPanelRows + column + v * kPanelLanes);
      }
    }
  }
}

// Calls the block for `rows` rows, 1 to Step::kMostRows.
template <class Step, template <class> class Form, size_t kRows = Step::kMostRows>
HWY_INLINE void RunBlock(const PanelBlock& b) {
  if constexpr (kRows > 1) {
    if (b.rows < static_cast<int64_t>(kRows)) return RunBlock<Step, Form, kRows - 1>(b);
  }
  Form<Step>::template Run<kRows>(b);
}

template <class Step>
struct FloatForm {
  template <size_t kRows>
  static HWY_INLINE void Run(const PanelBlock& b) {
    FloatBlock<Step, kRows>(b);
  }
};
template <class Step>
struct Int8Form {
  template <size_t kRows>
  static HWY_INLINE void Run(const PanelBlock& b) {
    Int8Block<Step, kRows>(b);
  }
};

// Calls run(Step, Form) with those of the format on this CPU.
template <class F>
HWY_INLINE auto WithStep(WeightFormat format, F&& run) {
  switch (format) {
    case WeightFormat::kF32:
      break;
    case WeightFormat::kBF16:
#if HWY_TARGET <= HWY_AVX3
      if (simd_internal::has_avx512_bf16) return run.template operator()<Bf16DotStep, FloatForm>();
#endif
      return run.template operator()<Bf16Step, FloatForm>();
    case WeightFormat::kInt8:
#if HWY_TARGET <= HWY_AVX3
      if (simd_internal::has_avx512_vnni) return run.template operator()<Int8DotStep, Int8Form>();
#elif HWY_TARGET == HWY_AVX2
      return run.template operator()<Int8PairStep, Int8Form>();
#endif
      return run.template operator()<Int8Step, Int8Form>();
  }
  return run.template operator()<F32Step, FloatForm>();
}

}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#endif  // DENSEFORMER_KERNELS_GEMM_PANEL_KERNELS_INL_H_
