// The epilogue of gemm_amx.cc: from sums in cache to results in memory. Included within its target
// options.
#ifndef DENSEFORMER_KERNELS_GEMM_GEMM_AMX_EPILOGUE_INL_H_
#define DENSEFORMER_KERNELS_GEMM_GEMM_AMX_EPILOGUE_INL_H_

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "kernels/gelu_fast.h"
#include "kernels/gemm/gemm_amx_block-inl.h"
#include "kernels/gemm/gemm_amx_pack-inl.h"

namespace denseformer {
namespace {

// A matrix in memory whose first element is (row, column) of the result.
template <class T>
struct Plane {
  T* data = nullptr;
  int64_t stride = 0, row = 0, column = 0;

  T* At(int64_t r, int64_t c) const { return data + (r - row) * stride + c - column; }
};

enum class Form { kF32, kF32Squared, kBf16, kBf16Rotary, kGelu, kBf16AndGelu };

// Rotary embeddings (rotary.h) on the first columns of a result whose rows are sequences.
struct Rotary {
  const float* table = nullptr;  // [time, head_size], or null for none
  int64_t head_size = 0;         // a multiple of kBlock
  int64_t time = 0;              // rows of a sequence
  int64_t columns = 0;           // a multiple of head_size
};

// s = sums + add + bias; which planes are there follows from the form.
struct Target {
  Form form = Form::kF32;
  int64_t n = 0;                // columns of the result
  const float* bias = nullptr;  // [n] or null
  Plane<const float> add = {};  // or no data; may be f32
  Plane<float> f32 = {};        // s
  double* squares = nullptr;    // [rows / 16, 16]: squares of s are added, 16 rows each
  Plane<bf16> rounded = {};     // s rounded, and then rotated
  Rotary rotary = {};
  Plane<bf16> gelu = {};  // GELU(s rounded)
  // Whole lines bypass the cache: for results so large that they would leave it before they are
  // read. Lines that are stored without having been fetched do not hold up the loads of operands.
  bool stream = false;
};

// Whether results [rows, n] at `data` may be streamed: whole lines that begin on a line.
inline bool CanStream(const void* data, int64_t rows, int64_t row_bytes) {
  return StoredPastCache(rows * row_bytes) && row_bytes % 64 == 0 &&
         reinterpret_cast<uintptr_t>(data) % 64 == 0;
}

inline Target MakeTarget(const GemmEpilogue& epilogue, const Tensor& y, int64_t n) {
  Target target{.n = n, .bias = epilogue.bias.empty() ? nullptr : epilogue.bias.f32()};
  const Tensor &gelu = epilogue.gelu, &first = y.empty() ? gelu : y;
  target.stream =
      CanStream(first.raw(), first.rows(), n * static_cast<int64_t>(SizeOf(first.dtype())));
  if (!gelu.empty()) {
    target.form = y.empty() ? Form::kGelu : Form::kBf16AndGelu;
    target.gelu = {gelu.As<bf16>(), n};
    target.stream = target.stream && reinterpret_cast<uintptr_t>(gelu.raw()) % 64 == 0;
  }
  if (y.empty()) return target;
  if (y.dtype() == DType::kF32) {
    target.form = Form::kF32;
    target.f32 = {y.f32(), n};
    return target;
  }
  target.rounded = {y.As<bf16>(), n};
  if (gelu.empty()) target.form = Form::kBf16;
  if (!epilogue.rotary_table.empty()) {
    const int64_t head_size = epilogue.rotary_table.cols();
    target.form = Form::kBf16Rotary;
    target.rotary = {epilogue.rotary_table.f32(), head_size, y.shape()[1],
                     2 * epilogue.rotary_heads * head_size};
  }
  return target;
}

// Calls run.operator()<kForm>() with the form.
template <class F>
void WithForm(Form form, F&& run) {
  switch (form) {
    case Form::kF32:
      return run.template operator()<Form::kF32>();
    case Form::kF32Squared:
      return run.template operator()<Form::kF32Squared>();
    case Form::kBf16:
      return run.template operator()<Form::kBf16>();
    case Form::kBf16Rotary:
      return run.template operator()<Form::kBf16Rotary>();
    case Form::kGelu:
      return run.template operator()<Form::kGelu>();
    case Form::kBf16AndGelu:
      return run.template operator()<Form::kBf16AndGelu>();
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

// 16 values at neighboring columns, rotated as by rotary.cc, to the same bits.
inline __m512 Rotate(__m512 x, const float* row) {
  const __m512 sign =
      _mm512_castsi512_ps(_mm512_set1_epi64(0x3F800000BF800000));  // -1, 1, -1, 1...
  const __m512 angles = _mm512_loadu_ps(row);
  const __m512 sine = _mm512_mul_ps(_mm512_movehdup_ps(angles), sign);
  const __m512 other = _mm512_permute_ps(x, 0xB1);
  return _mm512_fmadd_ps(other, sine, _mm512_mul_ps(x, _mm512_moveldup_ps(angles)));
}

// A finished block of sums, up to kMostRows x 32, that goes to its target while the tile unit
// computes the next one.
template <Form kForm>
class OverlappedEpilogue {
 public:
  OverlappedEpilogue() = default;
  // `calls` of Rows() will follow, and then Finish().
  OverlappedEpilogue(const float* sums, int64_t row, int64_t rows, int64_t column, int64_t calls,
                     const Target& target)
      : sums_(sums), rows_(rows), portion_(DivUp(rows, calls)) {
    const int64_t cols = std::min(kBlock, target.n - column);
    mask_ = FirstLanes32(cols);
    stream_ = target.stream && cols == kBlock;
    if constexpr (kF32) {
      f32_ = target.f32.At(row, column);
      stride_ = target.f32.stride;
    }
    if constexpr (kForm == Form::kF32Squared) squares_ = target.squares + row;
    if constexpr (kRounded) {
      rounded_ = target.rounded.At(row, column);
      stride_ = target.rounded.stride;
    }
    if constexpr (kGelu) {
      gelu_ = target.gelu.At(row, column);
      stride_ = target.gelu.stride;
    }
    if (kForm == Form::kBf16Rotary && column < target.rotary.columns) {
      const Rotary& rotary = target.rotary;
      time_ = rotary.time;
      position_ = row % time_;
      head_size_ = rotary.head_size;
      angles_ = rotary.table + column % head_size_;
    }
    if (target.add.data != nullptr) {
      add_ = target.add.At(row, column);
      add_stride_ = target.add.stride;
    }
    if (target.bias == nullptr) return;
    bias_low_ = _mm512_maskz_loadu_ps(Low(), target.bias + column);
    bias_high_ = _mm512_maskz_loadu_ps(High(), target.bias + column + 16);
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
  static constexpr bool kF32 = kForm == Form::kF32 || kForm == Form::kF32Squared;
  static constexpr bool kRotary = kForm == Form::kBf16Rotary;
  static constexpr bool kRounded = kRotary || kForm == Form::kBf16 || kForm == Form::kBf16AndGelu;
  static constexpr bool kGelu = kForm == Form::kGelu || kForm == Form::kBf16AndGelu;
  static constexpr int64_t kAddAhead = 8;  // rows

  __mmask16 Low() const { return static_cast<__mmask16>(mask_); }
  __mmask16 High() const { return static_cast<__mmask16>(mask_ >> 16); }

  inline __attribute__((always_inline)) void Row(int64_t r) {
    __m512 low = _mm512_load_ps(sums_ + r * kBlock);
    __m512 high = _mm512_load_ps(sums_ + r * kBlock + 16);
    if (add_ != nullptr) {
      const float* add = add_ + r * add_stride_;
      _mm_prefetch(reinterpret_cast<const char*>(add + kAddAhead * add_stride_), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(add + kAddAhead * add_stride_ + 16), _MM_HINT_T0);
      low = _mm512_add_ps(low, _mm512_maskz_loadu_ps(Low(), add));
      high = _mm512_add_ps(high, _mm512_maskz_loadu_ps(High(), add + 16));
    }
    low = _mm512_add_ps(low, bias_low_);
    high = _mm512_add_ps(high, bias_high_);
    if constexpr (kForm == Form::kF32Squared) Square(r, low, high);
    if constexpr (kF32) {
      float* to = f32_ + r * stride_;
      if (stream_) {
        _mm512_stream_ps(to, low);
        _mm512_stream_ps(to + 16, high);
      } else {
        _mm512_mask_storeu_ps(to, Low(), low);
        _mm512_mask_storeu_ps(to + 16, High(), high);
      }
      return;
    }
    // GELU and rotation are those of the rounded sums, so that the bits are those of separate
    // passes.
    __m512i rounded = ToBf16(low, high);
    if (kRotary && angles_ != nullptr) {
      const float* angles = angles_ + position_ * head_size_;
      low = Rotate(ToF32(_mm512_castsi512_si256(rounded)), angles);
      high = Rotate(ToF32(_mm512_extracti64x4_epi64(rounded, 1)), angles + 16);
      rounded = ToBf16(low, high);
      if (++position_ == time_) position_ = 0;
    }
    if constexpr (kRounded) Store(rounded_ + r * stride_, rounded);
    if constexpr (kGelu) {
      const __m512 gelu_low = Gelu(ToF32(_mm512_castsi512_si256(rounded)));
      const __m512 gelu_high = Gelu(ToF32(_mm512_extracti64x4_epi64(rounded, 1)));
      Store(gelu_ + r * stride_, ToBf16(gelu_low, gelu_high));
    }
  }

  inline __attribute__((always_inline)) void Square(int64_t r, __m512 low, __m512 high) {
    square_ = _mm512_mask3_fmadd_ps(low, low, square_, Low());
    square_ = _mm512_mask3_fmadd_ps(high, high, square_, High());
    if ((r + 1) % kTileRows != 0 && r + 1 < rows_) return;
    double* to = squares_ + r / kTileRows * kTileRows;
    const __m256 upper = _mm512_extractf32x8_ps(square_, 1);
    _mm512_storeu_pd(
        to, _mm512_add_pd(_mm512_loadu_pd(to), _mm512_cvtps_pd(_mm512_castps512_ps256(square_))));
    _mm512_storeu_pd(to + 8, _mm512_add_pd(_mm512_loadu_pd(to + 8), _mm512_cvtps_pd(upper)));
    square_ = _mm512_setzero_ps();
  }
  void Store(bf16* to, __m512i values) const {
    if (stream_) {
      StreamLine(to, values);
    } else {
      _mm512_mask_storeu_epi16(to, mask_, values);
    }
  }

  const float* sums_ = nullptr;  // rows kBlock apart
  int64_t next_ = 0, rows_ = 0, portion_ = 1;
  int64_t stride_ = 0, add_stride_ = 0;
  float* f32_ = nullptr;
  double* squares_ = nullptr;
  bf16* rounded_ = nullptr;
  bf16* gelu_ = nullptr;
  const float* add_ = nullptr;
  const float* angles_ = nullptr;  // at position 0; null where these columns are not rotated
  int64_t position_ = 0, time_ = 0, head_size_ = 0;
  __mmask32 mask_ = 0;
  bool stream_ = false;
  __m512 bias_low_ = {}, bias_high_ = {};
  __m512 square_ = {};  // of the rows of a panel so far
  Prefetch prefetch_;
};

}  // namespace
}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_GEMM_GEMM_AMX_EPILOGUE_INL_H_
