// GEMM backends: the implementations behind gemm.h. A backend is one source file (gemm_<name>.cc)
// and one row of the table in backends.cc. gemm.cc checks the arguments and calls the row; nothing
// else depends on which one it is.
//
// Models that only run forward hold their weights in another form: frozen.h.
#ifndef DENSEFORMER_KERNELS_GEMM_BACKEND_H_
#define DENSEFORMER_KERNELS_GEMM_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/cpu.h"
#include "base/function_ref.h"
#include "tensor/tensor.h"

namespace denseformer {

// What a forward GEMM does with its sums s = x W^T on the way to memory. The bits are those of
// separate passes: GELU and rotation read what was rounded to the compute dtype.
struct GemmEpilogue {
  Tensor bias = {};          // [out] fp32: y = s + bias; or empty
  Tensor gelu = {};          // [N, out], compute dtype: GELU(y), and y may be empty; or empty
  Tensor rotary_table = {};  // [>= T, head_size] (rotary.h): rotates q and k of y [B, T, 3 D]
  int64_t rotary_heads = 0;
};

// GELU and rotation of `epilogue` as passes over y, for a backend that does not fuse them. Where y
// is empty, the sums are in epilogue.gelu.
void RunEpiloguePasses(const GemmEpilogue& epilogue, const Tensor& y);

// One matrix W [out, in] as a backend reads it. The arguments are those of gemm.h, checked, with at
// least one row. Calls of const functions from several threads at a time are safe.
class GemmWeight {
 public:
  virtual ~GemmWeight() = default;

  // PackedWeight::Change.
  virtual void Change(FunctionRef<void(int64_t first, int64_t last)> change) = 0;
  // y [N, out] = x [N, in] W^T with the epilogue.
  virtual void Forward(const Tensor& x, const GemmEpilogue& epilogue, const Tensor& y) const = 0;
  // dx [N, in] = dy [N, out] W.
  virtual void BackwardInput(const Tensor& dy, const Tensor& dx) const = 0;
};

struct FrozenGemm;  // frozen.h

struct GemmBackend {
  const char* name;          // the value of DENSEFORMER_GEMM
  const char* requirements;  // for messages: "amx needs ..."
  bool (*available)(DType compute, CpuFeatures cpu);
  std::string (*description)();

  // Bytes of the copy of W [out, in] that `pack` makes, and of the scratch memory in which
  // BackwardInput transposes it.
  size_t (*packed_bytes)(int64_t out, int64_t in, DType compute);
  size_t (*transposed_bytes)(int64_t out, int64_t in, DType compute);

  // For W at `master` (fp32), which must outlive the result. The copy has any content until Change.
  std::unique_ptr<GemmWeight> (*pack)(const Tensor& master, DType compute);
  // LinearBackwardWeight, with at least one row.
  void (*backward_weight)(const Tensor& dy, const Tensor& x, const Tensor& dweight, bool add,
                          double* squares);
  // Its weights for inference alone; null: those that every CPU can run.
  const FrozenGemm* frozen = nullptr;
};

// The backend in use: what DENSEFORMER_GEMM names (an error where it is not available), else the
// first available row.
const GemmBackend& GemmBackendFor(DType compute);

// The row with this name, or null.
const GemmBackend* FindGemmBackend(std::string_view name);

// The rows that can run here, in order of preference.
std::vector<const GemmBackend*> AvailableGemmBackends(DType compute);

// Overrides the choice while it lives, for tests and benchmarks; null: no override. Weights keep
// the backend that they were packed with.
class ScopedGemmBackend {
 public:
  explicit ScopedGemmBackend(const GemmBackend* backend);
  ~ScopedGemmBackend();
  ScopedGemmBackend(const ScopedGemmBackend&) = delete;
  ScopedGemmBackend& operator=(const ScopedGemmBackend&) = delete;

 private:
  const GemmBackend* before_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_GEMM_BACKEND_H_
