// Corpora to token files: what `denseformer data prepare` does.
//
// Writes train.bin, val.bin (headerless, as nanoGPT and the authors of DenseFormer read them),
// tokenizer.json and meta.json into a directory. Each document is followed by the end of text. All
// files appear whole at the end, or none does; memory does not depend on the size of the corpus.
#ifndef DENSEFORMER_DATA_PREPARE_H_
#define DENSEFORMER_DATA_PREPARE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "data/meta.h"
#include "denseformer/tokenizer.h"

namespace denseformer {

struct PrepareOptions {
  std::vector<std::string> inputs;
  // Files for val.bin. Without any, each document but the first goes there with the probability
  // `val_share`, by `seed` and its number; where the documents are so few that none does, the last
  // `val_share` of all tokens.
  std::vector<std::string> val_inputs;
  double val_share = 0.05;
  uint64_t seed = 1;
  std::string out;  // directory, made where missing
  CorpusOptions corpus;
};

// Throws what reading gives; kInvalid for an empty corpus, or an empty part of it; kBusy where
// another process prepares the same directory; kInterrupted after a signal.
DataMeta PrepareData(const Tokenizer& tokenizer, const PrepareOptions& options);

}  // namespace denseformer

#endif  // DENSEFORMER_DATA_PREPARE_H_
