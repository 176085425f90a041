// dwa.h: depth-weighted averages for an engine of your own.
//
// A DenseFormer block reads Y_i, a weighted average of the outputs X_0..X_i of all blocks so far
// (depth_pattern.h says which):
//   forward   Y_i  = sum over j in S_i of alpha_ij X_j
//   backward  dX_j = (dY_j where depth j has no module) + sum over readers i of alpha_ij dY_i
//             dalpha_ij = <X_j, dY_i>
//
//   DepthWeightedAverage dwa(DepthPattern::Parse("4x5", n_blocks), max_rows, width);
//   dwa.Start(rows);                                  // for each pass
//   for (int i = 1; i <= n_blocks; ++i) {
//     x[i] = Block(i, y);                             // yours
//     y = x[i];
//     if (dwa.has_module(i)) dwa.Forward(i, x[i], history, y);
//   }
// examples/own_engine.cc is this in full.
//
// The outputs X_j stay where the caller keeps them (the history), in fp32 or bf16: no copy is made.
// Matrices are dense [rows, width] in C order, with any alignment. Sums are fp32; a source of
// weight 0 takes no part, so at the initial weights Y_i is X_i bit for bit. Results are the same
// bits whatever the number of threads.
//
// Old history is read once for several modules; the partial sums that this takes are scratch memory
// of the object (scratch_bytes()).
//
// Thread safety: one pass at a time an object; objects are independent. Every call runs on all
// threads of the library (DENSEFORMER_THREADS). Wrong calls throw Error (kUsage), error.h, and
// change nothing.
#ifndef DENSEFORMER_DWA_H_
#define DENSEFORMER_DWA_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "denseformer/depth_pattern.h"
#include "denseformer/error.h"

namespace denseformer {

enum class HistoryType {
  kFloat32,
  kBfloat16,  // the upper 16 bits of a float, rounded to nearest even: half the memory traffic
};

class DepthWeightedAverage {
 public:
  // For passes of up to max_rows rows (tokens) of `width` elements.
  DepthWeightedAverage(const DepthPattern& pattern, int64_t max_rows, int64_t width,
                       HistoryType history = HistoryType::kFloat32);
  ~DepthWeightedAverage();
  DepthWeightedAverage(DepthWeightedAverage&&) noexcept;
  DepthWeightedAverage& operator=(DepthWeightedAverage&&) noexcept;

  const DepthPattern& pattern() const;
  bool has_module(int i) const { return pattern().has_module(i); }
  size_t scratch_bytes() const;

  // alpha of the module after block i, in the order of pattern().sources(i), newest last; empty
  // where there is none. At first 1 for the newest and 0 for the others. Write to them between
  // passes only.
  std::span<float> weights(int i);
  std::span<const float> weights(int i) const;
  // dalpha, in the same order; Backward adds to them, the caller sets them to 0.
  std::span<float> weight_gradients(int i);

  // Begins a pass over the first `rows` rows of every matrix.
  void Start(int64_t rows);

  // Y_i, for every i with a module, in ascending order.
  // newest: X_i in fp32. history[j]: X_j in the type given to the constructor, for every source
  // j < i; other entries are not read. y: Y_i in fp32; may be newest.
  void Forward(int i, const float* newest, const void* const* history, float* y);

  // dX_j, for every j from n_blocks down to 0, after the forward pass; the weights must not have
  // changed in between.
  // history[j]: as above, for every source, the newest ones too. dy[i]: dY_i in fp32 for every
  // module i >= j. dx: dX_j; where depth j has a module it is overwritten, else it holds dY_j and
  // is added to.
  void Backward(int j, const void* const* history, const float* const* dy, float* dx);

  // Copies n floats to the type of the history.
  void Store(const float* x, int64_t n, void* history) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_DWA_H_
