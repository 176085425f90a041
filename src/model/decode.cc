#include "model/decode.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/team.h"
#include "model/forward.h"
#include "model/qkv.h"

namespace denseformer {
namespace {

void CheckSequence(const Model& model, const DecodeSequence& sequence) {
  DF_CHECK(sequence.cache != nullptr && !sequence.tokens.empty());
  const int64_t length = sequence.cache->length();
  if (length + static_cast<int64_t>(sequence.tokens.size()) > model.config().seq_len) {
    Throw(ErrorCode::kInvalid,
          "sequence of {} tokens and {} new ones: expected at most {} together", length,
          sequence.tokens.size(), model.config().seq_len);
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

void Decode(const Model& model, std::span<const DecodeSequence> sequences,
            std::span<const int64_t> rows, Activations& a, LogitsSink sink) {
  std::vector<int32_t> tokens;
  std::vector<DecodeQuery> queries;
  for (const DecodeSequence& sequence : sequences) CheckSequence(model, sequence);
  for (const DecodeSequence& sequence : sequences) {
    const int64_t count = static_cast<int64_t>(sequence.tokens.size());
    sequence.cache->Reserve(sequence.cache->length() + count);
    queries.push_back({static_cast<int64_t>(tokens.size()), count, sequence.cache->length(),
                       sequence.cache->pages()});
    tokens.insert(tokens.end(), sequence.tokens.begin(), sequence.tokens.end());
  }
  if (tokens.empty()) return;
  a.SetShape(static_cast<int64_t>(tokens.size()), 1);
  const KvPool& pool = sequences.front().cache->pool();
  const auto attend = [&](int i, BlockActivations& b) {
    QkvForward(model, i, a);
    AttentionDecode({.qkv = b.qkv.Reshape({a.rows(), b.qkv.cols()}),
                     .heads = model.config().n_head,
                     .rotary = pool.rotary(),
                     .page_offset = pool.BlockOffset(i),
                     .queries = queries,
                     .out = b.attention.Reshape({a.rows(), b.attention.cols()})});
  };
  const auto pass = [&] {
    ForwardRows(model, tokens, DropoutOptions(), attend, a, {});
    for (const DecodeSequence& sequence : sequences) {
      sequence.cache->SetLength(sequence.cache->length() +
                                static_cast<int64_t>(sequence.tokens.size()));
    }
    // The chosen rows move to the front, so none is overwritten before it is read.
    const int64_t chosen = static_cast<int64_t>(rows.size());
    for (int64_t r = 0; r < chosen; ++r) CopyRow(a.ln_f, rows[static_cast<size_t>(r)], a.ln_f, r);
    const int64_t chunk = a.logits.rows();
    for (int64_t first = 0; first < chosen; first += chunk) {
      const int64_t n = std::min(chunk, chosen - first);
      const Tensor logits = a.logits.Rows(0, n);
      LinearForward(a.ln_f.Rows(first, n), model.packed_head(), Tensor(), logits);
      sink(first, logits);
    }
  };
  if (model.frozen()) {
    RunAsTeam(pass);  // no library has threads of its own there
  } else {
    pass();
  }
}

}  // namespace denseformer
