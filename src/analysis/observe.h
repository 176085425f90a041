// Runs a model over a token stream and shows what happens at each depth.
#ifndef DENSEFORMER_ANALYSIS_OBSERVE_H_
#define DENSEFORMER_ANALYSIS_OBSERVE_H_

#include <cstdint>

#include "base/function_ref.h"
#include "data/token_file.h"
#include "model/activations.h"
#include "model/model.h"

namespace denseformer {

// X_i and Y_i, [tokens, D] fp32, of the tokens at hand; of the activations what belongs to depth i.
using SeeDepth =
    FunctionRef<void(int i, const Tensor& x, const Tensor& y, Activations& activations)>;

// Calls see for every depth i = 0..d of each batch, over the first `most_tokens` tokens of the file
// in whole windows of the model's length (at least one). Returns the number of tokens.
int64_t ObserveDepths(const Model& model, const TokenFile& file, int64_t most_tokens, SeeDepth see);

}  // namespace denseformer

#endif  // DENSEFORMER_ANALYSIS_OBSERVE_H_
