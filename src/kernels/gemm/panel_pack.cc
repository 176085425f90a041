// Packs panels a few columns at a time: rows become words of 4 bytes (one fp32, two bf16, four
// int8), then blocks of words are transposed, so that a panel is written from its first byte to its
// last.
#include "kernels/gemm/panel_pack.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/gemm/frozen.h"
#include "kernels/simd.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/panel_pack.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on
#include "kernels/load-inl.h"
#include "kernels/vector_loop-inl.h"

#ifndef DENSEFORMER_KERNELS_GEMM_PANEL_PACK_ONCE_
#define DENSEFORMER_KERNELS_GEMM_PANEL_PACK_ONCE_
namespace denseformer {
namespace {

// Words of a row that are transposed together with those of the panel's other rows, and the
// distance of the rows meanwhile: no power of two, whose lines would share few places in the cache.
constexpr int64_t kBlockWords = 128;
constexpr int64_t kBlockStride = kBlockWords + 16;

}  // namespace
}  // namespace denseformer
#endif  // DENSEFORMER_KERNELS_GEMM_PANEL_PACK_ONCE_

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {

using PackTag = hn::CappedTag<float, 16>;

// The largest magnitude of a row; not a number where one of its elements is not finite.
float LargestOf(const float* row, int64_t n) {
  const PackTag d;
  auto largest = hn::Zero(d), odd = hn::Zero(d);
  ForEachVector(d, n, [&](int64_t i, auto lanes) HWY_ATTR {
    const auto x = LoadLanes(d, row + i, lanes);
    largest = hn::Max(hn::Abs(x), largest);
    odd = hn::MulAdd(x, hn::Zero(d), odd);
  });
  return hn::GetLane(hn::MaxOfLanes(d, largest)) + hn::GetLane(hn::SumOfLanes(d, odd));
}

// The low byte of each lane.
template <class V>
void StoreBytes(V lanes, uint8_t* to, Whole) {
  const hn::Rebind<uint8_t, PackTag> d;
  hn::StoreU(hn::U8FromU32(hn::And(lanes, hn::Set(hn::Rebind<uint32_t, PackTag>(), 255))), d, to);
}
template <class V>
void StoreBytes(V lanes, uint8_t* to, Part part) {
  HWY_ALIGN uint8_t bytes[hn::MaxLanes(PackTag())];
  StoreBytes(lanes, bytes, Whole());
  std::memcpy(to, bytes, part.count);
}

// q = round(row / step) + offset
void RoundRow(const float* row, int64_t n, float step, int offset, uint8_t* q) {
  const PackTag d;
  const hn::Rebind<int32_t, PackTag> di;
  const hn::Rebind<uint32_t, PackTag> du;
  const auto most = hn::Set(d, 127.0f), least = hn::Set(d, -127.0f), by = hn::Set(d, step);
  ForEachVector(d, n, [&](int64_t i, auto lanes) HWY_ATTR {
    const auto value = hn::Div(LoadLanes(d, row + i, lanes), by);
    const auto whole = hn::NearestInt(hn::Min(hn::Max(value, least), most));
    StoreBytes(hn::BitCast(du, hn::Add(whole, hn::Set(di, offset))), q + i, lanes);
  });
}

void RoundRowToBf16(const float* row, int64_t n, bf16* to) {
  const PackTag d;
  int64_t i = 0;
  for (; i + static_cast<int64_t>(hn::Lanes(d)) <= n; i += static_cast<int64_t>(hn::Lanes(d))) {
    StoreRounded(d, hn::LoadU(d, row + i), to + i);  // as bf16() rounds, denormal numbers too
  }
  for (; i < n; ++i) to[i] = bf16(row[i]);
}

// to [words, kPanelRows] = the transpose of from [kPanelRows, words]; `from` may be read up to a
// multiple of four words.
void TransposeWords(const uint32_t* from, size_t words, uint32_t* to) {
  constexpr size_t kStride = kBlockStride;
#if HWY_TARGET == HWY_SCALAR
  for (size_t w = 0; w < words; ++w) {
    for (size_t r = 0; r < kPanelRows; ++r) *to++ = from[r * kStride + w];
  }
#else
  const hn::FixedTag<uint32_t, 4> d;
  const hn::FixedTag<uint64_t, 2> d64;
  for (size_t w = 0; w < words; w += 4, to += 4 * kPanelRows) {
    const size_t count = std::min<size_t>(4, words - w);
    for (size_t r = 0; r < kPanelRows; r += 4) {
      const uint32_t* const at = from + r * kStride + w;
      const auto a = hn::LoadU(d, at), b = hn::LoadU(d, at + kStride);
      const auto c = hn::LoadU(d, at + 2 * kStride), e = hn::LoadU(d, at + 3 * kStride);
      const auto ab0 = hn::BitCast(d64, hn::InterleaveLower(d, a, b));
      const auto ce0 = hn::BitCast(d64, hn::InterleaveLower(d, c, e));
      const auto ab2 = hn::BitCast(d64, hn::InterleaveUpper(d, a, b));
      const auto ce2 = hn::BitCast(d64, hn::InterleaveUpper(d, c, e));
      const auto store = [&](size_t word, auto column) HWY_ATTR {
        if (word < count) hn::StoreU(hn::BitCast(d, column), d, to + word * kPanelRows + r);
      };
      store(0, hn::InterleaveLower(d64, ab0, ce0));
      store(1, hn::InterleaveUpper(d64, ab0, ce0));
      store(2, hn::InterleaveLower(d64, ab2, ce2));
      store(3, hn::InterleaveUpper(d64, ab2, ce2));
    }
  }
#endif
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace denseformer {
namespace {

HWY_EXPORT(LargestOf);
HWY_EXPORT(RoundRow);
HWY_EXPORT(RoundRowToBf16);
HWY_EXPORT(TransposeWords);

float StepOf(const float* row, int64_t n, const float* given) {
  return given != nullptr ? *given : DF_DYNAMIC_DISPATCH(LargestOf)(row, n) / 127;
}

void Quantize(const float* row, int64_t n, float step, int offset, uint8_t* q) {
  if (std::isfinite(step) && step > 0) {
    DF_DYNAMIC_DISPATCH(RoundRow)(row, n, step, offset, q);
  } else {
    std::fill_n(q, n, static_cast<uint8_t>(offset));
  }
}

// Elements [n] of a row as words; what they leave of the last word stays as it is.
void WriteWords(WeightFormat format, const float* row, int64_t n, float step, uint32_t* words) {
  switch (format) {
    case WeightFormat::kF32:
      std::memcpy(words, row, static_cast<size_t>(n) * sizeof(float));
      break;
    case WeightFormat::kBF16:
      DF_DYNAMIC_DISPATCH(RoundRowToBf16)(row, n, reinterpret_cast<bf16*>(words));
      break;
    case WeightFormat::kInt8:
      Quantize(row, n, step, 128, reinterpret_cast<uint8_t*>(words));
      break;
  }
}

}  // namespace

float QuantizeRow(const float* row, int64_t n, const float* scale, int8_t* q) {
  const float step = StepOf(row, n, scale);
  Quantize(row, n, step, 0, reinterpret_cast<uint8_t*>(q));
  return step;
}

void PackPanel(WeightFormat format, const float* rows, int64_t count, int64_t in,
               const float* given, std::byte* panel, float* scales) {
  alignas(64) uint32_t words[kPanelRows * kBlockStride] = {};
  for (int64_t r = 0; format == WeightFormat::kInt8 && r < count; ++r) {
    scales[r] = StepOf(rows + r * in, in, given == nullptr ? nullptr : given + r);
  }
  uint32_t* to = reinterpret_cast<uint32_t*>(panel);
  const int64_t terms = kBlockWords * TermsPerWord(format);
  for (int64_t begin = 0; begin < in; begin += terms) {
    const int64_t n = std::min(terms, in - begin), whole = WordsOf(n, format);
    for (int64_t r = 0; r < count; ++r) {
      uint32_t* const of_row = words + r * kBlockStride;
      of_row[whole - 1] = 0;  // the terms that the last one lacks
      WriteWords(format, rows + r * in + begin, n, scales == nullptr ? 0.0f : scales[r], of_row);
    }
    DF_DYNAMIC_DISPATCH(TransposeWords)(words, static_cast<size_t>(whole), to);
    to += whole * static_cast<int64_t>(kPanelRows);
  }
}

}  // namespace denseformer
#endif  // HWY_ONCE
