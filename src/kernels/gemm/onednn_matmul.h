// Matrix multiplications and changes of layout by oneDNN, the engine under the GEMM backend
// (gemm_onednn.cc): primitives are compiled once per shape and thread, and run on raw pointers.
// Versions 2.6 and 3.x of oneDNN both build.
#ifndef DENSEFORMER_KERNELS_GEMM_ONEDNN_MATMUL_H_
#define DENSEFORMER_KERNELS_GEMM_ONEDNN_MATMUL_H_

#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>

#include "tensor/dtype.h"
#include "tensor/storage.h"

namespace denseformer::onednn {

// Limited to the CPU features in use.
dnnl::engine& Engine();

// How many threads oneDNN's next call gets when it asks for `threads`. oneDNN gives each thread of
// its plan a part of the result; where OpenMP starts fewer threads than planned (OMP_DYNAMIC,
// OMP_THREAD_LIMIT), the parts of the others would silently be missing.
int UseThreads(int threads);

// Scratch memory that only grows.
void* Scratch(Storage& storage, size_t bytes);

// An fp32 [cols, rows] matrix, read as its transpose [rows, cols].
dnnl::memory::desc TransposedF32(int64_t rows, int64_t cols);
// The layout of a packed bf16 matrix of weights, [k, n] as matmul sees it.
dnnl::memory::desc PackedLayout(int64_t k, int64_t n);

enum class Gemm : uint8_t { kForward, kBackwardInput, kBackwardWeight };

// What a compiled primitive depends on.
struct GemmKey {
  Gemm gemm;
  int64_t rows, out, in;
  DType operand, result;
  bool bias;
  int threads;
  int64_t dy_stride = 0;  // of a row of dy, for weight gradients
  int64_t columns = 0;    // of the result, where a call computes only some; 0: all
  bool add = false;       // to what the result holds

  bool operator==(const GemmKey&) const = default;
};

// Runs the GEMM of `key`, whose `threads` UseThreads gave. Weights of bf16 forward and input GEMMs
// are in PackedLayout, all others in place; `bias` may be null where the key has none.
void RunGemm(const GemmKey& key, const void* source, const void* weights, const float* bias,
             void* destination);

// Copies a matrix to another layout; prepared once, for the number of threads at that time.
class Repack {
 public:
  Repack() = default;
  Repack(const dnnl::memory::desc& from, const void* source, const dnnl::memory::desc& to);
  void Run(void* copy) const;

 private:
  dnnl::memory source_, destination_;
  dnnl::reorder reorder_;
  int threads_ = 1;
};

}  // namespace denseformer::onednn

#endif  // DENSEFORMER_KERNELS_GEMM_ONEDNN_MATMUL_H_
