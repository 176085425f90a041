// Passes on a KV cache: a few new tokens of several sequences, each at its own length.
#ifndef DENSEFORMER_MODEL_DECODE_H_
#define DENSEFORMER_MODEL_DECODE_H_

#include <cstdint>
#include <span>

#include "model/activations.h"
#include "model/kv_cache.h"
#include "model/model.h"

namespace denseformer {

// New tokens of the sequence in a slot; they stand behind what the slot holds.
struct DecodeSequence {
  int slot = 0;
  std::span<const int32_t> tokens;
};

// Activations for decode passes of up to `rows` new tokens together.
Activations DecodeActivations(const Model& model, int64_t rows);

// Adds the tokens of each sequence to its slot and gives the logits after the last of each: logits
// [sequences, V] fp32. A slot may appear once. Throws Error (kInvalid) for a token outside the
// vocabulary or a slot that would overflow; the cache is unchanged then.
void Decode(const Model& model, std::span<const DecodeSequence> sequences, KvCache& cache,
            Activations& activations, const Tensor& logits);

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_DECODE_H_
