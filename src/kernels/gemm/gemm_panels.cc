// Frozen weights on every CPU: fp32, bf16 and int8 in one layout for one row and for many
// (gemm_panels.h). Threads share the panels out (panel_run.h); the loops of panel_kernels-inl.h are
// the same for any number of rows, so that results do not depend on it.
#include "kernels/gemm/gemm_panels.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/team.h"
#include "kernels/gemm/frozen.h"
#include "kernels/gemm/panel_input.h"
#include "kernels/gemm/panel_pack.h"
#include "kernels/gemm/panel_run.h"
#include "kernels/simd.h"
#include "tensor/storage.h"

namespace denseformer {
namespace {

constexpr int64_t kRows = static_cast<int64_t>(kPanelRows);
static_assert(kRows == kFrozenRows);
// Weights that are worth a thread of their own.
constexpr int64_t kGrainBytes = int64_t{16} << 10;

int64_t DivUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

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

  std::span<const std::byte> Share(int part, int parts) const override {
    return {PanelAt(panels() * part / parts), PanelAt(panels() * (part + 1) / parts)};
  }

  void Forward(const Tensor& x, const GemmEpilogue& epilogue, const Tensor& y) const override {
    const PanelInput input = PreparePanelInput(x, format_);
    const PanelGemm gemm = {.format = format_,
                            .panels = memory_,
                            .words = words(),
                            .out = out_,
                            .scales = format_ == WeightFormat::kInt8 ? scales() : nullptr,
                            .bias = epilogue.bias.empty() ? nullptr : epilogue.bias.f32(),
                            .y = y.raw(),
                            .gelu = epilogue.gelu.raw(),
                            .dtype = (y.empty() ? epilogue.gelu : y).dtype()};
    const int64_t rows = x.rows(), count = panels();
    const int64_t chunks = DivUp(rows, kMostChunkRows), chunk = DivUp(rows, chunks);
    const int64_t grain = std::max<int64_t>(1, kGrainBytes / (panel_bytes() * rows));
    ParallelForShared(
        chunks * count, grain, /*most=*/count,
        [&](int64_t begin, int64_t end, const SharedPart& part) {
          while (begin < end) {  // panels of one chunk at a time
            const int64_t first = begin % count, row = begin / count * chunk;
            const int64_t n = std::min(count - first, end - begin);
            begin += n;
            const std::byte* const next = begin == part.end ? NextStart(rows, part) : nullptr;
            MultiplyPanels(gemm, input,
                           {.first = first,
                            .count = n,
                            .row = row,
                            .rows = std::min(chunk, rows - row),
                            .next = next != nullptr ? next : PanelAt(begin % count)});
          }
        },
        [&](const SharedPart& part) {
          if (UsesInt8Tiles(format_, chunk)) ReleaseInt8Tiles();
          PrefetchNext(rows, part);
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
  const std::byte* PanelAt(int64_t panel) const { return memory_ + panel * panel_bytes(); }
  float* scales() const { return reinterpret_cast<float*>(memory_ + panels() * panel_bytes()); }

  // Element (row, k).
  std::byte* At(int64_t row, int64_t k) const {
    const int64_t terms = TermsPerWord(format_), word = k / terms;
    return memory_ + row / kRows * panel_bytes() + (word * kRows + row % kRows) * 4 +
           k % terms * (4 / terms);
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
