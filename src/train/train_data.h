// The data of a run: a directory with train.bin and val.bin (headerless or with llm.c's header),
// and where `data prepare` made it, meta.json and tokenizer.json.
#ifndef DENSEFORMER_TRAIN_TRAIN_DATA_H_
#define DENSEFORMER_TRAIN_TRAIN_DATA_H_

#include <optional>
#include <string>

#include "data/token_file.h"
#include "denseformer/tokenizer.h"

namespace denseformer {

inline constexpr const char* kTrainFile = "train.bin";
inline constexpr const char* kValidationFile = "val.bin";

// The tokenizer of a directory of token files, or of a run; nothing where it has none.
std::optional<Tokenizer> FindTokenizer(const std::string& directory);

// What tells one token file from another: the hash of its bytes. Of files of more than 1 GiB it is
// the hash in meta.json, where there is one, and one of the size and of samples of the content.
std::string Fingerprint(const TokenFile& file);

struct TrainData {
  // Throws kUsage where `path` is empty, kNotFound where files are missing, kInvalid where a token
  // or the tokenizer does not fit a vocabulary of `vocab_size`.
  TrainData(const std::string& path, int64_t vocab_size);

  TokenFile train, validation;
  std::optional<Tokenizer> tokenizer;
};

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_TRAIN_DATA_H_
