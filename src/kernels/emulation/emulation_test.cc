// The instructions of AVX512_BF16 and AMX in the forms that compilers emit, against plain loops: on
// a CPU that has them this compares the loops with the hardware, elsewhere (DENSEFORMER_EMULATE=1)
// the emulator with the loops.
#include <gtest/gtest.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ostream>
#include <vector>

#include "base/cpu.h"
#include "base/random.h"
#include "tensor/dtype.h"

#define DF_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))

namespace denseformer {
namespace {

struct alignas(64) Words {
  uint32_t at[16];
  bool operator==(const Words&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Words& words) {
  for (const uint32_t word : words.at) out << std::hex << word << ' ';
  return out;
}

float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
uint32_t ToBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// Denormals as zeros of their sign.
float Flushed(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}
float FlushedFma(float a, float b, float c) {
  return Flushed(std::fma(Flushed(a), Flushed(b), Flushed(c)));
}
float Odd(uint32_t pair) { return FromBits(pair & 0xffff0000u); }
float Even(uint32_t pair) { return FromBits(pair << 16); }

// Pairs of bf16: random numbers, denormals, zeros, the largest ones, infinity.
Words RandomPairs(uint64_t seed) {
  constexpr uint32_t kSpecial[] = {0x0001, 0x8001, 0x0000, 0x8000, 0x7f7f, 0x7f80};
  Random random(seed);
  Words words;
  for (size_t i = 0; i < 16; ++i) {
    words.at[i] = (ToBits(random.Normal()) & 0xffff0000u) | ToBits(random.Normal()) >> 16;
    if ((i + seed) % 5 == 0) words.at[i] = (words.at[i] & 0xffff0000u) | kSpecial[i % 6];
  }
  return words;
}

Words RandomFloats(uint64_t seed) {
  Random random(seed);
  Words words;
  for (uint32_t& word : words.at) word = ToBits(random.Normal());
  return words;
}

// What a mask leaves of `result`.
Words Masked(const Words& result, const Words& before, uint32_t mask, bool zeroing) {
  Words all = result;
  for (size_t i = 0; i < 16; ++i) {
    if ((mask >> i & 1) == 0) all.at[i] = zeroing ? 0 : before.at[i];
  }
  return all;
}

Words PlainDot(const Words& sum, const Words& a, const Words& b) {
  Words result;
  for (size_t i = 0; i < 16; ++i) {
    const float odd = FlushedFma(Odd(a.at[i]), Odd(b.at[i]), FromBits(sum.at[i]));
    result.at[i] = ToBits(FlushedFma(Even(a.at[i]), Even(b.at[i]), odd));
  }
  return result;
}

Words Broadcast(uint32_t word) {
  Words all;
  std::fill_n(all.at, 16, word);
  return all;
}

// Only numbers are compared bit by bit: which NaN comes out of several is not.
void ExpectSame(const Words& got, const Words& expected) {
  for (size_t i = 0; i < 16; ++i) {
    if (std::isnan(FromBits(expected.at[i]))) {
      EXPECT_TRUE(std::isnan(FromBits(got.at[i]))) << i;
    } else {
      EXPECT_EQ(got.at[i], expected.at[i]) << i << "\n" << got << "\n" << expected;
    }
  }
}

// With a LOCK prefix every CPU rejects these instructions, so that the emulator is tested also
// where the hardware has them, or has them though CPUID hides them. The jump skips the prefix.
#define DF_FORCE "testl %[force], %[force]\n jz 1f\n .byte 0xf0\n 1: "
#define DF_FORCED [force] "r"(force)

bool Emulates() {
  const char* const wanted = std::getenv("DENSEFORMER_EMULATE");
  return wanted != nullptr && std::strcmp(wanted, "1") == 0;
}

// What `instruction` makes of a vector.
template <class F>
DF_AVX512 Words Applied(F instruction, const Words& before) {
  __m512i vector = _mm512_load_si512(before.at);
  instruction(vector);
  Words result;
  _mm512_store_si512(result.at, vector);
  return result;
}

DF_AVX512 void TestDotProducts(int force) {
  static Words table[4];
  for (size_t i = 0; i < 4; ++i) table[i] = RandomPairs(10 + i);
  const Words sum = RandomFloats(1), a = RandomPairs(2), b = RandomPairs(3);
  const __m512i va = _mm512_load_si512(a.at), vb = _mm512_load_si512(b.at);
  const auto run = [&](auto instruction) DF_AVX512 { return Applied(instruction, sum); };
  constexpr __mmask16 kMask = 0xa5c3;
  ExpectSame(run([&](__m512i& s) DF_AVX512 {
               asm(DF_FORCE "vdpbf16ps %2, %1, %0" : "+v"(s) : "v"(va), "v"(vb), DF_FORCED : "cc");
             }),
             PlainDot(sum, a, b));
  // Registers beyond 15.
  ExpectSame(run([&](__m512i& s) DF_AVX512 {
               asm("vmovaps %0, %%zmm31\n vmovdqa64 %1, %%zmm17\n vmovdqa64 %2, %%zmm24\n" DF_FORCE
                   "vdpbf16ps %%zmm24, %%zmm17, %%zmm31\n vmovaps %%zmm31, %0"
                   : "+v"(s)
                   : "v"(va), "v"(vb), DF_FORCED
                   : "xmm17", "xmm24", "xmm31", "cc");
             }),
             PlainDot(sum, a, b));
  // Masks.
  ExpectSame(run([&](__m512i& s) DF_AVX512 {
               asm(DF_FORCE "vdpbf16ps %2, %1, %0%{%3%}"
                   : "+v"(s)
                   : "v"(va), "v"(vb), "Yk"(kMask), DF_FORCED
                   : "cc");
             }),
             Masked(PlainDot(sum, a, b), sum, kMask, false));
  ExpectSame(run([&](__m512i& s) DF_AVX512 {
               asm(DF_FORCE "vdpbf16ps %2, %1, %0%{%3%}%{z%}"
                   : "+v"(s)
                   : "v"(va), "v"(vb), "Yk"(kMask), DF_FORCED
                   : "cc");
             }),
             Masked(PlainDot(sum, a, b), sum, kMask, true));
  // Memory: a displacement of one byte, which counts vectors, or elements of a broadcast; of four;
  // base, index and scale; relative to the instruction.
  const Words* const base = table;
  ExpectSame(run([&](__m512i& s) DF_AVX512 {
               asm(DF_FORCE "vdpbf16ps 128(%2), %1, %0"
                   : "+v"(s)
                   : "v"(va), "r"(base), DF_FORCED
                   : "memory", "cc");
             }),
             PlainDot(sum, a, table[2]));
  ExpectSame(run([&](__m512i& s) DF_AVX512 {
               asm(DF_FORCE "vdpbf16ps 12(%2)%{1to16%}, %1, %0"
                   : "+v"(s)
                   : "v"(va), "r"(base), DF_FORCED
                   : "memory", "cc");
             }),
             PlainDot(sum, a, Broadcast(table[0].at[3])));
  ExpectSame(run([&](__m512i& s) DF_AVX512 {
               asm(DF_FORCE "vdpbf16ps -9808(%2), %1, %0"
                   : "+v"(s)
                   : "v"(va), "r"(reinterpret_cast<uint64_t>(base) + 9808 + 64), DF_FORCED
                   : "memory", "cc");
             }),
             PlainDot(sum, a, table[1]));
  ExpectSame(run([&](__m512i& s) DF_AVX512 {
               asm(DF_FORCE "vdpbf16ps 64(%2,%3,8), %1, %0"
                   : "+v"(s)
                   : "v"(va), "r"(base), "r"(int64_t{16}), DF_FORCED
                   : "memory", "cc");
             }),
             PlainDot(sum, a, table[3]));
  ExpectSame(
      run([&](__m512i& s) DF_AVX512 {
        asm(DF_FORCE "vdpbf16ps %2, %1, %0" : "+v"(s) : "v"(va), "m"(table[1]), DF_FORCED : "cc");
      }),
      PlainDot(sum, a, table[1]));
  // Half a vector; the rest becomes 0.
  Words half = PlainDot(sum, a, b);
  std::fill(half.at + 8, half.at + 16, 0u);
  ExpectSame(
      run([&](__m512i& s) DF_AVX512 {
        asm(DF_FORCE "vdpbf16ps %t2, %t1, %t0" : "+v"(s) : "v"(va), "v"(vb), DF_FORCED : "cc");
      }),
      half);
}

TEST(EmulatedInstruction, DotProductsOfBf16) {
  if (!GetCpuFeatures().Has(CpuFeature::kAvx512Bf16)) GTEST_SKIP() << "no AVX512_BF16";
  TestDotProducts(0);
  if (Emulates()) TestDotProducts(1);
}

uint32_t PlainBf16(uint32_t bits) {
  const float value = Flushed(FromBits(bits));
  if (std::isnan(value)) return bits >> 16 | 0x40;
  const bf16 rounded(value);
  uint16_t result;
  std::memcpy(&result, &rounded, sizeof(result));
  return result;
}

// Rounded pairs of words `first`, then of `second`.
Words PlainBf16(const Words& first, const Words& second) {
  Words result;
  for (size_t i = 0; i < 16; ++i) {
    const Words& from = i < 8 ? first : second;
    result.at[i] = PlainBf16(from.at[i % 8 * 2]) | PlainBf16(from.at[i % 8 * 2 + 1]) << 16;
  }
  return result;
}

DF_AVX512 void TestConversions(int force) {
  Words x = RandomFloats(4);
  const Words y = RandomFloats(5), before = RandomFloats(6);
  // A tie to even down and up, just above a tie, denormal, -0, the largest, infinity, NaN.
  constexpr uint32_t kSpecial[] = {0x3f808000, 0x3f818000, 0x3f808001, 0x007fffff, 0x80000000,
                                   0x7f7fffff, 0xff800000, 0x7f800001, 0xffc12345};
  std::copy(std::begin(kSpecial), std::end(kSpecial), x.at);
  const __m512 vx = _mm512_load_ps(x.at), vy = _mm512_load_ps(y.at);
  const auto run = [&](auto instruction) DF_AVX512 { return Applied(instruction, before); };
  const Words* const px = &x;
  EXPECT_EQ(
      run([&](__m512i& v) DF_AVX512 {
        asm(DF_FORCE "vcvtne2ps2bf16 %2, %1, %0" : "=v"(v) : "v"(vy), "v"(vx), DF_FORCED : "cc");
      }),
      PlainBf16(x, y));
  EXPECT_EQ(run([&](__m512i& v) DF_AVX512 {
              asm(DF_FORCE "vcvtne2ps2bf16 (%2), %1, %0"
                  : "=v"(v)
                  : "v"(vy), "r"(px), DF_FORCED
                  : "memory", "cc");
            }),
            PlainBf16(x, y));
  const Words zero{};
  EXPECT_EQ(run([&](__m512i& v) DF_AVX512 {
              asm(DF_FORCE "vcvtneps2bf16 %1, %t0" : "=v"(v) : "v"(vx), DF_FORCED : "cc");
            }),
            PlainBf16(x, zero));
  EXPECT_EQ(
      run([&](__m512i& v) DF_AVX512 {
        asm(DF_FORCE "vcvtneps2bf16 (%1), %t0" : "=v"(v) : "r"(px), DF_FORCED : "memory", "cc");
      }),
      PlainBf16(x, zero));
  // Masks select results, of 16 bits here.
  const __mmask16 mask = 0x00ff;
  Words merged = before;
  const Words all = PlainBf16(x, zero);
  std::copy_n(all.at, 4, merged.at);
  std::fill(merged.at + 8, merged.at + 16, 0u);
  EXPECT_EQ(run([&](__m512i& v) DF_AVX512 {
              asm(DF_FORCE "vcvtneps2bf16 %1, %t0%{%2%}"
                  : "+v"(v)
                  : "v"(vx), "Yk"(mask), DF_FORCED
                  : "cc");
            }),
            merged);
  std::fill(merged.at + 4, merged.at + 8, 0u);
  EXPECT_EQ(run([&](__m512i& v) DF_AVX512 {
              asm(DF_FORCE "vcvtneps2bf16 %1, %t0%{%2%}%{z%}"
                  : "+v"(v)
                  : "v"(vx), "Yk"(mask), DF_FORCED
                  : "cc");
            }),
            merged);
  // Eight values to a quarter of a register.
  Words quarter{};
  std::copy_n(all.at, 4, quarter.at);
  EXPECT_EQ(run([&](__m512i& v) DF_AVX512 {
              asm(DF_FORCE "vcvtneps2bf16 %t1, %x0" : "=v"(v) : "v"(vx), DF_FORCED : "cc");
            }),
            quarter);
}

TEST(EmulatedInstruction, ConversionsToBf16) {
  if (!GetCpuFeatures().Has(CpuFeature::kAvx512Bf16)) GTEST_SKIP() << "no AVX512_BF16";
  TestConversions(0);
  if (Emulates()) TestConversions(1);
}

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// c [16, 16] += a b on tiles: a [m, k] words, b [k, n] words, c [m, n]; rows 16 words apart.
struct TileCase {
  uint8_t m, n, k;
  std::vector<uint32_t> a, b, c;

  TileCase(uint8_t rows, uint8_t columns, uint8_t words)
      : m(rows), n(columns), k(words), a(256), b(256), c(256) {
    for (size_t i = 0; i < 16; ++i) {
      const Words pairs_a = RandomPairs(100 + i), pairs_b = RandomPairs(200 + i);
      const Words sums = RandomFloats(300 + i);
      std::copy_n(pairs_a.at, 16, &a[16 * i]);
      std::copy_n(pairs_b.at, 16, &b[16 * i]);
      std::copy_n(sums.at, 16, &c[16 * i]);
    }
  }

  template <class Multiply>
  std::vector<uint32_t> Run(Multiply multiply) const {
    TileConfig config;
    for (const auto& [tile, rows, words] :
         {std::array<uint8_t, 3>{0, m, n}, {3, m, k}, {7, k, n}}) {
      config.rows[tile] = rows;
      config.row_bytes[tile] = static_cast<uint16_t>(4 * words);
    }
    TileConfig before, during;
    std::vector<uint32_t> result(256, 7);
    const int64_t stride = 64;
    const uint64_t before_c = reinterpret_cast<uint64_t>(c.data()) - 64;
    asm volatile("sttilecfg %0" : "=m"(before));
    asm volatile("ldtilecfg %0" ::"m"(config));
    asm volatile("sttilecfg %0" : "=m"(during));
    asm volatile("tileloadd (%0,%1,1), %%tmm3" ::"r"(a.data()), "r"(stride) : "memory");
    asm volatile("tileloadd (%0,%1,1), %%tmm7" ::"r"(b.data()), "r"(stride) : "memory");
    asm volatile("tileloadd 64(%0,%1,2), %%tmm0" ::"r"(before_c), "r"(stride / 2) : "memory");
    multiply();
    asm volatile("tilestored %%tmm0, (%0,%1,1)" ::"r"(result.data()), "r"(stride) : "memory");
    asm volatile("ldtilecfg %0" ::"m"(before));
    EXPECT_EQ(0, std::memcmp(&config, &during, sizeof(config)));
    return result;
  }

  // `sum`(row, column) is what is expected within the tile; nothing is stored outside of it.
  template <class Sum>
  void Expect(const std::vector<uint32_t>& got, Sum sum) const {
    for (size_t row = 0; row < 16; ++row) {
      for (size_t column = 0; column < 16; ++column) {
        const size_t i = 16 * row + column;
        const uint32_t expected = row < m && column < n ? sum(row, column) : 7;
        if (std::isnan(FromBits(expected))) {
          EXPECT_TRUE(std::isnan(FromBits(got[i])));
        } else {
          EXPECT_EQ(got[i], expected) << row << ", " << column;
        }
      }
    }
  }
};

TEST(EmulatedInstruction, TileProducts) {
  if (!GetCpuFeatures().Has(CpuFeature::kAmxBf16)) GTEST_SKIP() << "no AMX";
  for (const auto& [m, n, k] : {std::array<uint8_t, 3>{16, 16, 16}, {5, 7, 3}, {1, 16, 9}}) {
    const TileCase t(m, n, k);
    const auto product = t.Run([] { asm volatile("tdpbf16ps %%tmm7, %%tmm3, %%tmm0" ::); });
    t.Expect(product, [&](size_t row, size_t column) {
      float even = 0, odd = 0;
      for (size_t i = 0; i < t.k; ++i) {
        const uint32_t a = t.a[16 * row + i], b = t.b[16 * i + column];
        even = FlushedFma(Even(a), Even(b), even);
        odd = FlushedFma(Odd(a), Odd(b), odd);
      }
      const float sum = Flushed(even + odd);
      return ToBits(Flushed(FromBits(t.c[16 * row + column]) + sum));
    });
    const auto zero = t.Run([] { asm volatile("tilezero %%tmm0" ::); });
    t.Expect(zero, [](size_t, size_t) { return 0u; });
  }
}

TEST(EmulatedInstruction, TileProductsOfBytes) {
  if (!GetCpuFeatures().Has(CpuFeature::kAmxInt8)) GTEST_SKIP() << "no AMX of int8";
  for (const auto& [m, n, k] : {std::array<uint8_t, 3>{16, 16, 16}, {5, 7, 3}, {1, 16, 9}}) {
    const TileCase t(m, n, k);
    const auto product = t.Run([] { asm volatile("tdpbsud %%tmm7, %%tmm3, %%tmm0" ::); });
    t.Expect(product, [&](size_t row, size_t column) {
      uint32_t sum = t.c[16 * row + column];
      for (size_t i = 0; i < t.k; ++i) {
        for (int shift = 0; shift < 32; shift += 8) {
          const auto a = static_cast<int8_t>(t.a[16 * row + i] >> shift);
          const auto b = static_cast<uint8_t>(t.b[16 * i + column] >> shift);
          sum += static_cast<uint32_t>(a * b);
        }
      }
      return sum;
    });
  }
}

}  // namespace
}  // namespace denseformer
