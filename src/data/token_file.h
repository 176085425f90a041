// Token files, memory-mapped. What is read, told apart by content and size:
//
//   headerless:  token*                       uint16 or uint32, little-endian (nanoGPT,
//   DenseFormer) llm.c:       int32[256] token*            {20240520, 1, count}: uint16; {20240801,
//   7, count}:
//                                             uint32
//
// The type of a headerless file is that of the meta.json beside it. Without one it is uint32 where
// the high half of every token looked at is tiny (as it is below 2^20) and some low half is not,
// else uint16.
#ifndef DENSEFORMER_DATA_TOKEN_FILE_H_
#define DENSEFORMER_DATA_TOKEN_FILE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/file.h"
#include "data/meta.h"

namespace denseformer {

// Reading is thread-safe.
class TokenFile {
 public:
  // `type` overrides the detection for a headerless file. Throws kNotFound, kCorrupt (a size that
  // does not fit the type, the header or meta.json), kInvalid (no tokens).
  explicit TokenFile(const std::string& path, std::optional<TokenType> type = std::nullopt);

  int64_t size() const { return size_; }  // in tokens
  TokenType type() const { return type_; }
  bool has_llmc_header() const { return header_bytes_ > 0; }
  const std::string& path() const { return file_.path(); }
  // The meta.json beside the file, where it names this file.
  const std::optional<DataMeta>& meta() const { return meta_; }

  uint32_t operator[](int64_t index) const {
    return type_ == TokenType::kUint16 ? narrow_[index] : wide_[index];
  }

  // Tokens [begin, begin + count) as int32 to `out`. The caller keeps within size() and has checked
  // the vocabulary.
  void Read(int64_t begin, int64_t count, int32_t* out) const;

  struct Scan {
    uint32_t largest = 0;
    int64_t position_of_largest = 0;  // the first one
    int64_t end_of_text_count = 0;
  };
  // Reads the whole file once, on all threads.
  Scan ScanTokens(int32_t end_of_text) const;

  // Throws kInvalid with position and value of the first token that is not below `vocab_size`.
  void CheckVocabulary(int64_t vocab_size) const;

 private:
  void DetectHeader();
  void DetectType();

  MappedFile file_;
  std::optional<DataMeta> meta_;
  TokenType type_ = TokenType::kUint16;
  int64_t header_bytes_ = 0;
  int64_t size_ = 0;
  const uint16_t* narrow_ = nullptr;
  const uint32_t* wide_ = nullptr;
};

}  // namespace denseformer

#endif  // DENSEFORMER_DATA_TOKEN_FILE_H_
