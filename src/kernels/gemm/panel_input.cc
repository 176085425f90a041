#include "kernels/gemm/panel_input.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/parallel.h"
#include "kernels/simd.h"
#include "tensor/storage.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/panel_input.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on
#include "kernels/gemm/panel_kernels-inl.h"
#include "kernels/load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {

// Bytes that a word of x takes; those of bf16 and int8 may be spread over more than 4.
int64_t InputBytes(WeightFormat format) {
  return WithStep(format,
                  []<class Step, template <class> class Form>() { return Step::kInputBytes; });
}

// Pairs of fp32, the odd element first; where the last pair has none, it is 0.
void SpreadInput(const bf16* x, int64_t terms, float* to) {
  const PanelTag32 d;
  constexpr int64_t kPairs = static_cast<int64_t>(kPanelLanes);
  uint32_t* const bits = reinterpret_cast<uint32_t*>(to);
  int64_t k = 0;
  for (; k + 2 * kPairs <= terms; k += 2 * kPairs) {
    const auto pairs = hn::LoadU(d, reinterpret_cast<const uint32_t*>(x + k));
    hn::StoreInterleaved2(hn::And(pairs, hn::Set(d, 0xffff0000u)), hn::ShiftLeft<16>(pairs), d,
                          bits + k);
  }
  for (; k < terms; k += 2) {
    to[k] = k + 1 < terms ? static_cast<float>(x[k + 1]) : 0.0f;
    to[k + 1] = static_cast<float>(x[k]);
  }
}

// Vectors of integers of magnitude up to 127 that become a group's bytes.
constexpr size_t kGroupTerms = kInt8GroupWords * 4;
constexpr size_t kGroupVectors = kGroupTerms / kPanelLanes;
#if HWY_TARGET <= HWY_AVX3  // four vectors at a time: a third of the shuffles
HWY_INLINE void StoreBytes(const PanelVecI32 (&from)[kGroupVectors], int8_t* to) {
  const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
  for (size_t v = 0; v < kGroupVectors; v += 4, to += 4 * kPanelLanes) {
    const __m512i words0 = _mm512_packs_epi32(from[v].raw, from[v + 1].raw);
    const __m512i words1 = _mm512_packs_epi32(from[v + 2].raw, from[v + 3].raw);
    const __m512i bytes = _mm512_packs_epi16(words0, words1);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi32(order, bytes));
  }
}
#else
HWY_INLINE void StoreBytes(const PanelVecI32 (&from)[kGroupVectors], int8_t* to) {
  const hn::Rebind<int8_t, PanelTagI32> d8;
  for (size_t v = 0; v < kGroupVectors; ++v) {
    hn::StoreU(hn::DemoteTo(d8, from[v]), d8, to + v * kPanelLanes);
  }
}
#endif

// The terms of a group as int8, zeros behind the first `count`; what is not finite makes its scale
// not finite.
void QuantizeGroup(const bf16* x, int64_t count, int8_t* q, Int8Group* group) {
  const PanelTag d;
  const PanelTag32 d32;
  const PanelTagI32 di;
  HWY_ALIGN bf16 padded[kGroupTerms];
  if (count < static_cast<int64_t>(kGroupTerms)) {
    std::fill_n(padded, kGroupTerms, bf16(0.0f));
    std::memcpy(padded, x, static_cast<size_t>(count) * sizeof(bf16));
    x = padded;
  }
  // As integers, magnitudes have the same order, with infinity and NaN above all numbers.
  auto even = hn::Zero(d32), odd = hn::Zero(d32);
  for (size_t v = 0; v < kGroupVectors / 2; ++v) {
    const auto pairs = hn::LoadU(d32, reinterpret_cast<const uint32_t*>(x) + v * kPanelLanes);
    even = hn::Max(even, hn::And(hn::ShiftLeft<16>(pairs), hn::Set(d32, 0x7fff0000u)));
    odd = hn::Max(odd, hn::And(pairs, hn::Set(d32, 0x7fff0000u)));
  }
  const auto most = hn::BitCast(di, hn::Max(even, odd));
  const float largest = hn::GetLane(hn::BitCast(d, hn::MaxOfLanes(di, most)));
  const float inverse = 127 / largest;
  if (!(largest > 0 && std::isfinite(largest) && std::isfinite(inverse))) {
    // All 0, or something that is no number: the scale alone tells.
    group->scale = largest * 0.0f;
    if (std::isfinite(largest)) group->scale = largest / 127;
    group->offset = 0;
    std::fill_n(q, kGroupTerms, int8_t{0});
    return;
  }
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits of the sum.
  const auto magic = hn::Set(d, 12582912.0f);
  PanelVecI32 rounded[kGroupVectors];
  auto sum = hn::Zero(di);
  for (size_t v = 0; v < kGroupVectors; ++v) {
    const auto product = hn::Mul(LoadF32(d, x + v * kPanelLanes), hn::Set(d, inverse));
    rounded[v] = hn::Sub(hn::BitCast(di, hn::Add(product, magic)), hn::BitCast(di, magic));
    sum = hn::Add(sum, rounded[v]);
  }
  StoreBytes(rounded, q);
  group->scale = largest / 127;
  group->offset = -128 * hn::GetLane(hn::SumOfLanes(di, sum));
}

// Writes the first `count` terms of a group as the kernels read them, a whole number of words.
constexpr bool kSpreadsTerms = HWY_TARGET == HWY_AVX2;
void StoreTerms(const int8_t* q, size_t count, std::byte* to) {
#if HWY_TARGET == HWY_AVX2
  // The bytes of a word as 16-bit integers, in the order 0, 2, 1, 3.
  HWY_ALIGN int16_t spread[kGroupTerms];
  for (size_t k = 0; k < kGroupTerms; k += 16) {
    const __m256i wide =
        _mm256_cvtepi8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(q + k)));
    const __m256i low = _mm256_shufflelo_epi16(wide, 0xd8);
    _mm256_store_si256(reinterpret_cast<__m256i*>(spread + k), _mm256_shufflehi_epi16(low, 0xd8));
  }
  std::memcpy(to, spread, count * sizeof(int16_t));
#else
  std::memcpy(to, q, count);
#endif
}

// `to` takes InputBytes(kInt8) per word.
void QuantizeInput(const bf16* x, int64_t terms, std::byte* to, Int8Group* groups) {
  constexpr int64_t kTerms = static_cast<int64_t>(kGroupTerms);
  const int64_t group_bytes = kInt8GroupWords * InputBytes(WeightFormat::kInt8);
  HWY_ALIGN int8_t q[kGroupTerms];
  for (int64_t begin = 0; begin < terms; begin += kTerms, to += group_bytes) {
    const int64_t count = std::min(kTerms, terms - begin);
    if (!kSpreadsTerms && count == kTerms) {  // nearly all: a copy would take most of the time
      QuantizeGroup(x + begin, count, reinterpret_cast<int8_t*>(to), groups++);
    } else {
      QuantizeGroup(x + begin, count, q, groups++);
      StoreTerms(q, static_cast<size_t>(count + 3) / 4 * 4, to);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace denseformer {
namespace {

HWY_EXPORT(InputBytes);
HWY_EXPORT(SpreadInput);
HWY_EXPORT(QuantizeInput);

// Memory of the calling thread that only grows.
std::byte* Grown(Storage& storage, size_t bytes) {
  if (storage.bytes() < bytes) storage = Storage(bytes);
  return static_cast<std::byte*>(storage.data());
}

}  // namespace

PanelInput PreparePanelInput(const Tensor& x, WeightFormat format) {
  const int64_t rows = x.rows(), in = x.cols(), words = WordsOf(in, format);
  const int64_t word_bytes = DF_DYNAMIC_DISPATCH(InputBytes)(format);
  const bool spread = word_bytes > 4;
  const int64_t used = words * word_bytes;
  if (format == WeightFormat::kF32 || (format == WeightFormat::kBF16 && in % 2 == 0 && !spread)) {
    return {static_cast<const std::byte*>(x.raw()), used, word_bytes, nullptr, 0};
  }
  const bool int8 = format == WeightFormat::kInt8;
  const int64_t stride = int8 ? (used + kInt8RowBytes - 1) / kInt8RowBytes * kInt8RowBytes : used;
  thread_local Storage padded, group_storage;
  const int64_t groups = Int8Groups(words);
  // The last tile may read rows behind the last one.
  const int64_t readable = rows + (int8 ? kInt8BlockRows : 0);
  std::byte* const data = Grown(padded, static_cast<size_t>(readable * stride));
  Int8Group* const all = reinterpret_cast<Int8Group*>(
      Grown(group_storage, static_cast<size_t>(rows * groups) * sizeof(Int8Group)));
  const int64_t grain = std::max<int64_t>(1, (int8 ? 1 << 12 : 1 << 15) / in);
  ParallelFor(rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const bf16* const from = x.As<const bf16>() + r * in;
      if (int8) {
        DF_DYNAMIC_DISPATCH(QuantizeInput)(from, in, data + r * stride, all + r * groups);
        std::memset(data + r * stride + used, 0, static_cast<size_t>(stride - used));
      } else if (spread) {
        DF_DYNAMIC_DISPATCH(SpreadInput)(from, in, reinterpret_cast<float*>(data + r * stride));
      } else {
        std::memcpy(data + r * stride, from, static_cast<size_t>(in) * sizeof(bf16));
        std::memset(data + r * stride + in * 2, 0, 2);
      }
    }
  });
  return {data, stride, word_bytes, int8 ? all : nullptr, groups};
}

}  // namespace denseformer
#endif  // HWY_ONCE
