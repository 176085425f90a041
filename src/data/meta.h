// meta.json, which `data prepare` writes beside the token files that it makes:
//
//   {"format": "denseformer-tokens", "version": 1,
//    "token_type": "uint16" | "uint32", "vocab_size": V, "end_of_text": ID,
//    "tokenizer": {"file": "tokenizer.json", "hash": HEX},
//    "files": {"train.bin": {"documents", "bytes", "tokens", "hash"}, "val.bin": {...}}}
//
// "bytes" counts text bytes without separators, so that a loss can be given per byte. Hashes are
// those of base/hash.h over the whole file.
#ifndef DENSEFORMER_DATA_META_H_
#define DENSEFORMER_DATA_META_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace denseformer {

inline constexpr const char* kMetaFile = "meta.json";

enum class TokenType { kUint16, kUint32 };

const char* TokenTypeName(TokenType type);
TokenType ParseTokenType(const std::string& name);
inline int TokenTypeSize(TokenType type) { return type == TokenType::kUint16 ? 2 : 4; }

struct TokenFileMeta {
  int64_t documents = 0;
  int64_t bytes = 0;
  int64_t tokens = 0;
  std::string hash;
};

struct DataMeta {
  TokenType token_type = TokenType::kUint16;
  int64_t vocab_size = 0;
  int32_t end_of_text = -1;  // -1: none
  std::string tokenizer_file;
  std::string tokenizer_hash;
  std::map<std::string, TokenFileMeta> files;  // by name, without directory
};

std::string MetaToJson(const DataMeta& meta);

// The meta.json of `directory`; nothing where there is none, or where it belongs to another program
// (no such "format"). Throws kCorrupt where ours is damaged.
std::optional<DataMeta> ReadMeta(const std::string& directory);

}  // namespace denseformer

#endif  // DENSEFORMER_DATA_META_H_
