#include "train/train_data.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"

namespace denseformer {
namespace {

// `directory`/`name`, once it is clear that both exist.
std::string PathOf(const std::string& directory, const char* name) {
  if (directory.empty()) {
    Throw(ErrorCode::kUsage,
          "train: no data; give a directory with {} and {} (--data DIR), as 'denseformer data "
          "prepare' makes it",
          kTrainFile, kValidationFile);
  }
  const std::string path = directory + "/" + name;
  if (!FileExists(path)) {
    Throw(ErrorCode::kNotFound,
          "train: no {}; give the directory of the token files by --data DIR ('denseformer data "
          "prepare' makes it)",
          path);
  }
  return path;
}

// Of the size and of pieces over the whole length.
std::string HashSamples(const TokenFile& file) {
  constexpr int64_t kPieces = 1024, kPiece = 4096;
  const int64_t size = file.size(), length = std::min(size, kPiece);
  std::vector<int32_t> piece(static_cast<size_t>(length));
  Hasher hasher;
  hasher.Add(std::to_string(size));
  for (int64_t i = 0; i < kPieces; ++i) {
    file.Read((size - length) / (kPieces - 1) * i, length, piece.data());
    hasher.Add(piece.data(), piece.size() * sizeof(int32_t));
  }
  return hasher.Hex();
}

}  // namespace

std::optional<Tokenizer> FindTokenizer(const std::string& directory) {
  std::string name = "tokenizer.json";
  if (const std::optional<DataMeta> meta = ReadMeta(directory)) {
    if (!meta->tokenizer_file.empty()) name = meta->tokenizer_file;
  }
  const std::string path = directory + "/" + name;
  if (!FileExists(path)) return std::nullopt;
  return Tokenizer::Load(path);
}

std::string Fingerprint(const TokenFile& file) {
  constexpr uint64_t kMostBytes = uint64_t{1} << 30;
  if (FileSize(file.path()) <= kMostBytes) return HashFile(file.path());
  std::string stored;
  if (file.meta()) {
    const auto found = file.meta()->files.find(file.path().substr(file.path().rfind('/') + 1));
    if (found != file.meta()->files.end()) stored = found->second.hash + "-";
  }
  return stored + "sampled-" + HashSamples(file);
}

TrainData::TrainData(const std::string& path, int64_t vocab_size)
    : train(PathOf(path, kTrainFile)),
      validation(PathOf(path, kValidationFile)),
      tokenizer(FindTokenizer(path)) {
  if (tokenizer && tokenizer->vocab_size() > vocab_size) {
    Throw(ErrorCode::kInvalid,
          "train: the tokenizer of {} has {} tokens, but model.vocab_size is {}; use --vocab-size "
          "{} or more",
          path, tokenizer->vocab_size(), vocab_size, tokenizer->vocab_size());
  }
  train.CheckVocabulary(vocab_size);
  validation.CheckVocabulary(vocab_size);
}

}  // namespace denseformer
