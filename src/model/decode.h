// The pass on a KV cache: new tokens of several sequences, each at its own length.
#ifndef DENSEFORMER_MODEL_DECODE_H_
#define DENSEFORMER_MODEL_DECODE_H_

#include <cstdint>
#include <span>

#include "base/function_ref.h"
#include "model/activations.h"
#include "model/kv_cache.h"
#include "model/model.h"

namespace denseformer {

// New tokens of a sequence; they follow what its cache holds.
struct DecodeSequence {
  KvSequence* cache = nullptr;
  std::span<const int32_t> tokens;
};

// Activations for decode passes of up to `rows` new tokens together.
Activations DecodeActivations(const Model& model, int64_t rows);

// Logits exist for a chunk of rows at a time: called with consecutive chunks [n, V] of the chosen
// rows, the first of which is number `first` among them. The tensor is reused for the next chunk.
using LogitsSink = FunctionRef<void(int64_t first, const Tensor& logits)>;

// Adds the tokens of each sequence to its cache and gives the logits after the chosen ones: `rows`
// (ascending) number the tokens of all sequences in order. A sequence may appear once. Throws Error
// (kInvalid) for a token outside the vocabulary or a sequence longer than the model's seq_len; the
// caches are unchanged then.
void Decode(const Model& model, std::span<const DecodeSequence> sequences,
            std::span<const int64_t> rows, Activations& activations, LogitsSink sink);

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_DECODE_H_
