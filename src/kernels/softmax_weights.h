// What sampling needs of a row of logits: the largest one, and the weights of a softmax in fp64, so
// that the sum over a whole vocabulary does not depend on rounding in any way that matters.
#ifndef DENSEFORMER_KERNELS_SOFTMAX_WEIGHTS_H_
#define DENSEFORMER_KERNELS_SOFTMAX_WEIGHTS_H_

#include <span>

namespace denseformer {

// The largest of `logits`, at least one; NaN where one of them is not finite.
float LargestFinite(std::span<const float> logits);

// weights[i] = exp((logits[i] - largest) / temperature) within 1e-15 of itself, 0 where that is
// below 1e-300, exactly 1 for the largest. `temperature` > 0. Returns the sum of all. On the
// calling thread.
double SoftmaxWeights(std::span<const float> logits, float largest, double temperature,
                      std::span<double> weights);

}  // namespace denseformer

#endif  // DENSEFORMER_KERNELS_SOFTMAX_WEIGHTS_H_
