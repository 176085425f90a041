// Frozen weights on every CPU: fp32, bf16 and int8 in one layout for one row and for many
// (gemm_panels.h). The loops of panel_kernels-inl.h are the same for any number of rows, so that
// results do not depend on it.
#include "kernels/gemm/gemm_panels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "base/team.h"
#include "kernels/gemm/frozen.h"
#include "kernels/gemm/panel_pack.h"
#include "kernels/simd.h"
#include "tensor/storage.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/gemm_panels.cc"
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

// Calls run(Step, Form) with those of the format on this CPU.
template <class F>
auto WithStep(WeightFormat format, F&& run) {
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

int64_t MostBlockRows(WeightFormat format) {
  return WithStep(format, []<class Step, template <class> class Form>() {
    return static_cast<int64_t>(Step::kMostRows);
  });
}

// Bytes that a word of x takes; those of bf16 and int8 may be spread over more than 4.
int64_t InputBytes(WeightFormat format) {
  return WithStep(format,
                  []<class Step, template <class> class Form>() { return Step::kInputBytes; });
}

void RunPanelBlock(WeightFormat format, const PanelBlock& b) {
  WithStep(format,
           [&]<class Step, template <class> class Form>() HWY_ATTR { RunBlock<Step, Form>(b); });
}

// Sums to results: scale, bias, rounding, GELU of what was rounded.
template <class T>
void FinishRows(const PanelResult& result) {
  const PanelTag d;
  const PanelResult r = result;  // or it would be read again after every store
  for (size_t v = 0; v < kPanelRows; v += kPanelLanes) {
    const auto scale = r.scales == nullptr ? hn::Set(d, 1.0f) : hn::LoadU(d, r.scales + v);
    const auto add = r.bias == nullptr ? hn::Zero(d) : hn::LoadU(d, r.bias + v);
    for (int64_t n = 0; n < r.rows; ++n) {
      auto sum = hn::Load(d, r.sums + static_cast<size_t>(n) * kPanelRows + v);
      if (r.scales != nullptr) sum = hn::Mul(sum, scale);
      if (r.bias != nullptr) sum = hn::Add(sum, add);
      const size_t at = static_cast<size_t>(n * r.stride) + v;
      T* const y = static_cast<T*>(r.y != nullptr ? r.y : r.gelu) + at;
      StoreF32(d, sum, y);
      if (r.gelu == nullptr) continue;
      T* const gelu = static_cast<T*>(r.gelu) + at;
      StoreF32(d, Gelu<std::is_same_v<T, float>>(d, LoadF32(d, y)), gelu);
    }
  }
}

void FinishPanel(const PanelResult& r, DType dtype) {
  if (dtype == DType::kF32) {
    FinishRows<float>(r);
  } else {
    FinishRows<bf16>(r);
  }
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

// The terms of a group as int8, zeros behind the first `count`; what is not finite makes its scale
// not finite.
constexpr size_t kGroupTerms = kInt8GroupWords * 4;
void QuantizeGroup(const bf16* x, int64_t count, int8_t* q, Int8Group* group) {
  const PanelTag d;
  const PanelTagI32 di;
  const hn::Rebind<int8_t, PanelTagI32> d8;
  constexpr size_t kVectors = kGroupTerms / kPanelLanes;
  HWY_ALIGN bf16 padded[kGroupTerms];
  if (count < static_cast<int64_t>(kGroupTerms)) {
    std::fill_n(padded, kGroupTerms, bf16(0.0f));
    std::memcpy(padded, x, static_cast<size_t>(count) * sizeof(bf16));
    x = padded;
  }
  // As integers, magnitudes have the same order, with infinity and NaN above all numbers.
  PanelVec values[kVectors];
  auto most = hn::Zero(di);
  for (size_t v = 0; v < kVectors; ++v) {
    values[v] = LoadF32(d, x + v * kPanelLanes);
    most = hn::Max(most, hn::BitCast(di, hn::Abs(values[v])));
  }
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
  auto sum = hn::Zero(di);
  for (size_t v = 0; v < kVectors; ++v) {
    const auto r = hn::NearestInt(hn::Mul(values[v], hn::Set(d, inverse)));
    sum = hn::Add(sum, r);
    hn::StoreU(hn::DemoteTo(d8, r), d8, q + v * kPanelLanes);
  }
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

HWY_EXPORT(MostBlockRows);
HWY_EXPORT(InputBytes);
HWY_EXPORT(SpreadInput);
HWY_EXPORT(RunPanelBlock);
HWY_EXPORT(FinishPanel);
HWY_EXPORT(QuantizeInput);

constexpr int64_t kRows = static_cast<int64_t>(kPanelRows);
// Rows of a block: of a SIMD kernel on any target, and of any kernel.
constexpr int64_t kMostSimdRows = 12;
constexpr int64_t kMostRows = std::max(kMostSimdRows, kInt8BlockRows);
// Blocks of fewer rows are for VNNI. 128 terms of a panel keep its ports busy for 32 cycles per
// row; tiles take 64 for up to 16 rows, and some 100 from the last product to the sums in memory.
constexpr int64_t kLeastTileRows = 8;
static_assert(kRows == kFrozenRows);
// Rows of x that stay in L2 while panels pass by.
constexpr int64_t kChunkBytes = int64_t{384} << 10;
// Weights that are worth a thread of their own.
constexpr int64_t kGrainBytes = int64_t{16} << 10;

int64_t DivUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Memory of the calling thread that only grows.
std::byte* Grown(Storage& storage, size_t bytes) {
  if (storage.bytes() < bytes) storage = Storage(bytes);
  return static_cast<std::byte*>(storage.data());
}

// Rows of x as the kernels read them.
struct Input {
  const std::byte* data;
  int64_t stride;           // bytes
  const Int8Group* groups;  // int8
  int64_t groups_stride;
};

class PanelWeight : public FrozenWeight {
 public:
  PanelWeight(int64_t out, int64_t in, WeightFormat format, std::byte* memory)
      : out_(out), in_(in), format_(format), memory_(memory) {}

  static size_t Bytes(int64_t out, int64_t in, WeightFormat format) {
    const int64_t panels = DivUp(out, kRows);
    const int64_t scales = format == WeightFormat::kInt8 ? panels * kRows * 4 : 0;
    return static_cast<size_t>(panels * kRows * 4 * WordsOf(in, format) + scales);
  }

  void Pack(int64_t first, int64_t count, const float* rows, const float* scales) override {
    DF_CHECK(first % kRows == 0 && first + count <= out_);
    for (int64_t r = 0; r < count; r += kRows) {
      PackPanel(format_, rows + r * in_, std::min(kRows, count - r), in_,
                scales == nullptr ? nullptr : scales + r,
                memory_ + (first + r) / kRows * panel_bytes(),
                format_ == WeightFormat::kInt8 ? this->scales() + first + r : nullptr);
    }
  }

  void ReadRow(int64_t row, float* to) const override {
    for (int64_t k = 0; k < in_; ++k) {
      const std::byte* const from = At(row, k);
      switch (format_) {
        case WeightFormat::kF32:
          std::memcpy(to + k, from, sizeof(float));
          break;
        case WeightFormat::kBF16: {
          bf16 value;
          std::memcpy(&value, from, sizeof(value));
          to[k] = static_cast<float>(value);
          break;
        }
        case WeightFormat::kInt8:
          to[k] = static_cast<float>(static_cast<int>(*from) - 128) * scales()[row];
          break;
      }
    }
  }

  void Prefetch(int64_t part, int64_t parts) const override {
    const int64_t begin = panels() * part / parts * panel_bytes();
    const int64_t end = panels() * (part + 1) / parts * panel_bytes();
    PrefetchRange(memory_ + begin, end - begin);
  }

  void Forward(const Tensor& x, const GemmEpilogue& epilogue, const Tensor& y) const override {
    const Input input = Prepare(x);
    const int64_t rows = x.rows();
    const int64_t chunk =
        DivUp(rows, DivUp(rows, std::max(4 * kMostSimdRows, kChunkBytes / input.stride)));
    const int64_t chunks = DivUp(rows, chunk), count = panels();
    const int64_t grain = std::max<int64_t>(1, kGrainBytes / (panel_bytes() * rows));
    ParallelForShared(
        chunks * count, grain, /*most=*/count,
        [&](int64_t item, int) {
          const int64_t first = item / count * chunk;
          Panel(input, first, std::min(chunk, rows - first), item % count, epilogue, y);
        },
        [&](int part, int parts) {
          if (UsesTiles(rows)) ReleaseInt8Tiles();
          PrefetchNext(rows, part, parts);
        });
    if (!epilogue.rotary_table.empty()) {
      RunEpiloguePasses(
          {.rotary_table = epilogue.rotary_table, .rotary_heads = epilogue.rotary_heads}, y);
    }
  }

 private:
  int64_t words() const { return WordsOf(in_, format_); }
  int64_t panels() const { return DivUp(out_, kRows); }
  int64_t panel_bytes() const { return words() * kRows * 4; }
  bool UsesTiles(int64_t rows) const {
    return format_ == WeightFormat::kInt8 && rows >= kLeastTileRows && HasInt8Tiles();
  }
  float* scales() const { return reinterpret_cast<float*>(memory_ + panels() * panel_bytes()); }

  // Element (row, k).
  std::byte* At(int64_t row, int64_t k) const {
    const int64_t terms = TermsPerWord(format_), word = k / terms;
    return memory_ + row / kRows * panel_bytes() + (word * kRows + row % kRows) * 4 +
           k % terms * (4 / terms);
  }

  Input Prepare(const Tensor& x) const {
    const int64_t word_bytes = DF_DYNAMIC_DISPATCH(InputBytes)(format_);
    const bool spread = word_bytes > 4;
    const int64_t used = words() * word_bytes;
    if (format_ == WeightFormat::kF32 ||
        (format_ == WeightFormat::kBF16 && in_ % 2 == 0 && !spread)) {
      return {static_cast<const std::byte*>(x.raw()), used, nullptr, 0};
    }
    const bool int8 = format_ == WeightFormat::kInt8;
    const int64_t stride = int8 ? DivUp(used, kInt8RowBytes) * kInt8RowBytes : used;
    thread_local Storage padded, group_storage;
    const int64_t rows = x.rows(), groups = Int8Groups(words());
    // The last tile may read rows behind the last one.
    const int64_t readable = rows + (int8 ? kInt8BlockRows : 0);
    std::byte* const data = Grown(padded, static_cast<size_t>(readable * stride));
    Int8Group* const all = reinterpret_cast<Int8Group*>(
        Grown(group_storage, static_cast<size_t>(rows * groups) * sizeof(Int8Group)));
    const int64_t grain = std::max<int64_t>(1, (int8 ? 1 << 12 : 1 << 15) / in_);
    ParallelFor(rows, grain, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        const bf16* const from = x.As<const bf16>() + r * in_;
        if (int8) {
          DF_DYNAMIC_DISPATCH(QuantizeInput)(from, in_, data + r * stride, all + r * groups);
          std::memset(data + r * stride + used, 0, static_cast<size_t>(stride - used));
        } else if (spread) {
          DF_DYNAMIC_DISPATCH(SpreadInput)
          (from, in_, reinterpret_cast<float*>(data + r * stride));
        } else {
          std::memcpy(data + r * stride, from, static_cast<size_t>(in_) * sizeof(bf16));
          std::memset(data + r * stride + in_ * 2, 0, 2);
        }
      }
    });
    return {data, stride, all, groups};
  }

  // Rows [first, first + rows) of the result, columns of one panel, in blocks of about equal size.
  void Panel(const Input& input, int64_t first, int64_t rows, int64_t panel,
             const GemmEpilogue& epilogue, const Tensor& y) const {
    alignas(64) float sums[kMostRows * kRows];
    // Tiles have a fixed number of rows, filled or not.
    const bool tiles = UsesTiles(rows);
    const int64_t most = tiles ? kInt8BlockRows : DF_DYNAMIC_DISPATCH(MostBlockRows)(format_);
    const int64_t blocks = DivUp(rows, most), size = tiles ? most : DivUp(rows, blocks);
    const std::byte* const weights = memory_ + panel * panel_bytes();
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t row = first + b * size, end = std::min(first + rows, row + size);
      // A panel that is read several times is in cache after the first: the next one is fetched
      // over all of them.
      const int64_t ahead = blocks == 1 ? kPanelAhead : panel_bytes() + panel_bytes() * b / blocks;
      const PanelBlock block = {.x = input.data + row * input.stride,
                                .x_stride = input.stride,
                                .panel = weights,
                                .words = words(),
                                .rows = end - row,
                                .fetch = weights + ahead,
                                .fetch_step = kRows * 4 / blocks,
                                .groups = input.groups + row * input.groups_stride,
                                .groups_stride = input.groups_stride,
                                .sums = sums};
      if (UsesTiles(block.rows)) {
        RunInt8Tiles(block);
      } else {
        DF_DYNAMIC_DISPATCH(RunPanelBlock)(format_, block);
      }
      Finish(sums, row, end - row, panel * kRows, epilogue, y);
    }
  }

  void Finish(const float* sums, int64_t row, int64_t rows, int64_t column,
              const GemmEpilogue& epilogue, const Tensor& y) const {
    const DType dtype = (y.empty() ? epilogue.gelu : y).dtype();
    const int64_t columns = std::min(kRows, out_ - column);
    const auto at = [&](const Tensor& to) -> std::byte* {
      if (to.empty()) return nullptr;
      return static_cast<std::byte*>(to.raw()) +
             (row * out_ + column) * static_cast<int64_t>(SizeOf(dtype));
    };
    PanelResult result = {.sums = sums,
                          .rows = rows,
                          .scales = format_ == WeightFormat::kInt8 ? scales() + column : nullptr,
                          .bias = epilogue.bias.empty() ? nullptr : epilogue.bias.f32() + column,
                          .y = at(y),
                          .gelu = at(epilogue.gelu),
                          .stride = out_};
    if (columns == kRows) return DF_DYNAMIC_DISPATCH(FinishPanel)(result, dtype);
    // The last columns of a matrix, where those behind them would be the next row's.
    alignas(64) std::byte whole[2][kMostRows * kRows * sizeof(float)];
    alignas(64) float bias[kRows] = {};
    if (result.bias != nullptr) std::copy_n(result.bias, columns, bias);
    result.bias = result.bias == nullptr ? nullptr : bias;
    if (result.y != nullptr) result.y = whole[0];
    if (result.gelu != nullptr) result.gelu = whole[1];
    result.stride = kRows;
    DF_DYNAMIC_DISPATCH(FinishPanel)(result, dtype);
    for (const auto& [from, to] : {std::pair(whole[0], at(y)), {whole[1], at(epilogue.gelu)}}) {
      const size_t size = SizeOf(dtype);
      for (size_t r = 0; to != nullptr && r < static_cast<size_t>(rows); ++r) {
        std::memcpy(to + r * static_cast<size_t>(out_) * size, from + r * kPanelRows * size,
                    static_cast<size_t>(columns) * size);
      }
    }
  }

  int64_t out_, in_;
  WeightFormat format_;
  std::byte* memory_;
};

std::string Description(WeightFormat format) {
  LimitSimdTargets();
  const char* with = "";
  if (format == WeightFormat::kBF16 && simd_internal::has_avx512_bf16) with = " with BF16";
  if (format == WeightFormat::kInt8 && simd_internal::has_avx512_vnni) {
    with = HasInt8Tiles() ? " with VNNI and AMX" : " with VNNI";
  }
  return std::string("own kernels, ") + SimdTargetName() + with;
}

}  // namespace

const FrozenGemm kPanelGemm = {
    .supports = [](WeightFormat) { return true; },
    .description = Description,
    .bytes =
        [](int64_t out, int64_t in, WeightFormat format) {
          return (PanelWeight::Bytes(out, in, format) + kAlignment - 1) / kAlignment * kAlignment;
        },
    .make = [](int64_t out, int64_t in, WeightFormat format,
               std::byte* memory) -> std::unique_ptr<FrozenWeight> {
      return std::make_unique<PanelWeight>(out, in, format, memory);
    },
};

}  // namespace denseformer
#endif  // HWY_ONCE
