// Chooses the next token from logits. For many texts at once its time counts: each token of each
// text looks at a whole vocabulary.
#ifndef DENSEFORMER_INFER_SAMPLER_H_
#define DENSEFORMER_INFER_SAMPLER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "denseformer/generator.h"

namespace denseformer {

class Sampler {
 public:
  // `stream` numbers the sample: the random numbers of token t are a function of (seed, stream, t).
  Sampler(const SamplingOptions& options, uint64_t stream);

  // The token at position `position` of the generated text. `context` holds the tokens so far (for
  // the repetition penalty). Throws Error (kNonFinite) where no logit is a finite number.
  int32_t Choose(std::span<const float> logits, std::span<const int32_t> context,
                 uint64_t position) const;

 private:
  std::span<const float> Penalize(std::span<const float> logits,
                                  std::span<const int32_t> context) const;
  size_t ChooseByRank(std::span<const float> logits, double total, double chance) const;
  size_t ChooseById(double total, double chance) const;

  SamplingOptions options_;
  uint64_t stream_;
};

// Log-probability of `chosen` and of the `count` likeliest among the first `choices` tokens. The
// sum is over all rows of the embedding, as in evaluation, whether a token stands for them or not;
// it is one sum, so that a token's own value and its entry among the likeliest are the same bits.
// Throws Error (kNonFinite) where a logit is not a finite number.
GeneratedToken TokenLogprobs(std::span<const float> logits, size_t choices, int32_t chosen,
                             int count);

}  // namespace denseformer

#endif  // DENSEFORMER_INFER_SAMPLER_H_
