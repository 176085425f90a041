// Plain forms of the kernels in double precision, after the equations in their headers: what tests
// and benchmarks compare with. No part of the library (CMake target kernels_reference).
#ifndef DENSEFORMER_KERNELS_REFERENCE_H_
#define DENSEFORMER_KERNELS_REFERENCE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/adamw.h"
#include "kernels/dropout.h"
#include "tensor/tensor.h"

namespace denseformer::reference {

// A matrix row by row; the number of columns goes along where it matters.
using Values = std::vector<double>;

// The elements of a tensor of either dtype, as they are stored.
Values Read(const Tensor& tensor);

struct LayerNorm {
  Values out, mean, rstd;
};
// bias may be empty.
LayerNorm LayerNormForward(const Values& x, const Values& weight, const Values& bias);

struct LayerNormGradient {
  Values dx, dweight, dbias;
};
LayerNormGradient LayerNormBackward(const Values& dout, const Values& x, const Values& weight);

Values GeluForward(const Values& x);
// dy * gelu'(x).
Values GeluBackward(const Values& x, const Values& dy);

Values ResidualForward(const Values& x, const Values& delta, double gain, const Dropout& dropout);

// qkv [batch, time, 3 * heads * head_size]; direction -1 rotates back.
Values Rotary(const Values& qkv, int64_t time, int64_t heads, int64_t head_size, double base,
              int direction);

struct CrossEntropy {
  Values losses;   // [N]
  Values dlogits;  // [N, V], scaled
};
CrossEntropy CrossEntropyForwardBackward(const Values& logits, std::span<const int32_t> targets,
                                         double scale);

struct AdamWState {
  Values weights, gradients, first_moment, second_moment;
};
void AdamWUpdate(const AdamWStep& step, AdamWState& state);

// The gradient of <f(x), dy> by central differences of a function of Values, with steps of `step`.
template <class F>
Values FiniteDifference(const Values& x, const Values& dy, double step, F&& f) {
  Values gradient(x.size()), moved = x;
  for (size_t i = 0; i < x.size(); ++i) {
    moved[i] = x[i] + step;
    const Values above = f(moved);
    moved[i] = x[i] - step;
    const Values below = f(moved);
    moved[i] = x[i];
    for (size_t j = 0; j < dy.size(); ++j) gradient[i] += dy[j] * (above[j] - below[j]);
    gradient[i] /= 2 * step;
  }
  return gradient;
}

}  // namespace denseformer::reference

#endif  // DENSEFORMER_KERNELS_REFERENCE_H_
