#include "model/decode.h"

#include <cstring>
#include <vector>

#include "kernels/attention/attention_decode.h"
#include "kernels/rotary.h"
#include "model/passes.h"

namespace denseformer {
namespace {

void CheckSequence(const Model& model, const DecodeSequence& sequence, const KvCache& cache) {
  DF_CHECK(sequence.slot >= 0 && sequence.slot < cache.slots() && !sequence.tokens.empty());
  const int64_t length = cache.length(sequence.slot);
  if (length + static_cast<int64_t>(sequence.tokens.size()) > cache.capacity()) {
    Throw(ErrorCode::kInvalid,
          "sequence of {} tokens and {} new ones: expected at most {} together", length,
          sequence.tokens.size(), cache.capacity());
  }
  for (size_t n = 0; n < sequence.tokens.size(); ++n) {
    const int32_t token = sequence.tokens[n];
    if (token < 0 || token >= model.config().vocab_size) {
      Throw(ErrorCode::kInvalid,
            "token {} at position {}: expected 0 to {} (the model's vocabulary)", token,
            length + static_cast<int64_t>(n), model.config().vocab_size - 1);
    }
  }
}

// Row `row` of `from` becomes row `to_row` of `to`.
void CopyRow(const Tensor& from, int64_t row, const Tensor& to, int64_t to_row) {
  const Tensor source = from.Rows(row, 1);
  std::memmove(to.Rows(to_row, 1).raw(), source.raw(), source.bytes());
}

}  // namespace

Activations DecodeActivations(const Model& model, int64_t rows) {
  return Activations(model, rows, /*max_length=*/1, ModelUse::kInference);
}

void Decode(const Model& model, std::span<const DecodeSequence> sequences, KvCache& cache,
            Activations& a, const Tensor& logits) {
  const int heads = model.config().n_head;
  std::vector<int32_t> tokens;
  std::vector<DecodeQuery> queries;
  for (const DecodeSequence& sequence : sequences) {
    CheckSequence(model, sequence, cache);
    queries.push_back({static_cast<int64_t>(tokens.size()),
                       static_cast<int64_t>(sequence.tokens.size()), cache.length(sequence.slot),
                       Tensor(), Tensor()});
    tokens.insert(tokens.end(), sequence.tokens.begin(), sequence.tokens.end());
  }
  a.SetShape(static_cast<int64_t>(tokens.size()), 1);
  const auto attend = [&](int i, BlockActivations& b) {
    LinearForward(b.ln_1, model.packed(i).qkv, model.tensors().blocks[i - 1].qkv_bias, b.qkv);
    for (size_t s = 0; s < queries.size(); ++s) {
      DecodeQuery& query = queries[s];
      query.keys = cache.keys(i, sequences[s].slot);
      query.values = cache.values(i, sequences[s].slot);
      const Tensor rows = b.qkv.Rows(query.row, query.count);
      RotaryForward(cache.rotary().Rows(query.start, query.count), heads,
                    rows.Reshape({1, query.count, rows.cols()}));
    }
    AttentionDecode(b.qkv.Reshape({a.rows(), b.qkv.cols()}), heads, queries,
                    b.attention.Reshape({a.rows(), b.attention.cols()}));
  };
  ForwardRows(model, tokens, DropoutOptions(), attend, a, {});
  // Only the last token of each sequence has a successor to predict. Rows move towards the front,
  // so none is overwritten before it is read.
  for (size_t s = 0; s < queries.size(); ++s) {
    CopyRow(a.ln_f, queries[s].row + queries[s].count - 1, a.ln_f, static_cast<int64_t>(s));
    cache.SetLength(sequences[s].slot, queries[s].start + queries[s].count);
  }
  LinearForward(a.ln_f.Rows(0, static_cast<int64_t>(sequences.size())), model.packed_head(),
                Tensor(), logits);
}

}  // namespace denseformer
