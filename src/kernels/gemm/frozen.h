// Weights that only forward passes read, held once: a matrix is packed row by row from wherever it
// comes from, and no fp32 master stays behind.
//
// Each result is a sum over the terms in one fixed order that does not depend on the number of rows
// or threads: a row of x gives the same bits alone and among others.
#ifndef DENSEFORMER_KERNELS_GEMM_FROZEN_H_
#define DENSEFORMER_KERNELS_GEMM_FROZEN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/team.h"
#include "kernels/gemm/backend.h"
#include "tensor/weight_format.h"

namespace denseformer {

// Rows of W that are packed together.
inline constexpr int64_t kFrozenRows = 32;

class FrozenWeight : public GemmWeight {
 public:
  // Packs rows [first, first + count) of W, [count, in] at `rows`; `first` is a multiple of
  // kFrozenRows, and so is `count` but for the last rows. Several threads may pack different rows.
  // kInt8: `scales` [count] gives those of rows that were quantized before; null: from the rows.
  virtual void Pack(int64_t first, int64_t count, const float* rows, const float* scales) = 0;
  // Row `row` of W, as GEMMs see it.
  virtual void ReadRow(int64_t row, float* to) const = 0;
  // What thread `part` of `parts` reads first, in the order of the addresses; may be empty.
  virtual std::span<const std::byte> Share(int /*part*/, int /*parts*/) const { return {}; }

  // The matrix after this one: forward passes of few rows prefetch its beginning.
  void set_next(const FrozenWeight* next) { next_ = next; }

  void Change(FunctionRef<void(int64_t, int64_t)>) final { DF_CHECK(false); }
  void BackwardInput(const Tensor&, const Tensor&) const final { DF_CHECK(false); }

 protected:
  // Where the thread of this part begins to read the next matrix; null where that is not known, or
  // where a Forward of `rows` rows takes so long that fetching it early does not matter.
  const std::byte* NextStart(int64_t rows, const SharedPart& part) const;
  // What a Forward of `rows` rows calls on a thread that is done with its part: asks for the
  // beginning of the next matrix now, and for more of it while the thread waits (base/team.h).
  void PrefetchNext(int64_t rows, const SharedPart& part) const;

 private:
  const FrozenWeight* next_ = nullptr;
};

// What makes frozen weights; a GEMM backend may have a row of its own.
struct FrozenGemm {
  bool (*supports)(WeightFormat format);
  std::string (*description)(WeightFormat format);
  // Memory of W [out, in], a multiple of kAlignment.
  size_t (*bytes)(int64_t out, int64_t in, WeightFormat format);
  // `memory` is zeroed, aligned to kAlignment, and outlives the result.
  std::unique_ptr<FrozenWeight> (*make)(int64_t out, int64_t in, WeightFormat format,
                                        std::byte* memory);
};

// That of the GEMM backend in use where it supports the format, else kPanelGemm.
const FrozenGemm& FrozenGemmFor(WeightFormat format);

// Own kernels for every CPU and format (gemm_panels.cc).
extern const FrozenGemm kPanelGemm;

// q = round(row / scale), scale = largest magnitude / 127, 0 for a row of zeros. What is not finite
// becomes 0 and makes the scale not finite. Returns the scale; with `scale` given, uses that.
float QuantizeRow(const float* row, int64_t n, const float* scale, int8_t* q);

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_GEMM_FROZEN_H_
