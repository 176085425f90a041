// tokenizer.h: text to token ids and back, by byte-level BPE as in GPT-2.
//
// Any bytes can be encoded, and decoding gives back exactly those bytes; what is not valid UTF-8 is
// encoded as single bytes.
//
//   denseformer::Tokenizer tokenizer = denseformer::Tokenizer::Load("tokenizer.json");
//   std::vector<int32_t> ids = tokenizer.Encode("In the beginning");
//   std::string text = tokenizer.Decode(ids);
#ifndef DENSEFORMER_TOKENIZER_H_
#define DENSEFORMER_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace denseformer {

struct TokenizerData;

// What the name of a special token ("<|endoftext|>") means inside a text.
enum class SpecialTokens {
  kAsText,     // nothing special: encoded like any other characters (safe for text from outside)
  kRecognize,  // its own id
};

// Immutable: copies are cheap and share the data, every method may be called from several threads.
class Tokenizer {
 public:
  // Reads what `path` names, told apart by content:
  //   - a Hugging Face tokenizer.json (BPE model, ByteLevel splitting)
  //   - GPT-2's vocab.bpe or a merges.txt; ids as in GPT-2 unless a vocab.json is beside it
  //   - vocab.json or encoder.json with merges.txt or vocab.bpe beside it
  //   - a directory with any of these
  //   - the word "bytes": the byte tokenizer, where no such file exists
  // Throws Error: kNotFound, kCorrupt (damaged), kUnsupported (a tokenizer of another kind).
  static Tokenizer Load(const std::string& path);

  // From the content of a tokenizer.json; `name` stands in the messages of errors.
  static Tokenizer FromJson(std::string_view json, const std::string& name);

  // 256 bytes (the id is the byte) and the end of text, 256.
  static Tokenizer Bytes();

  // For the library itself.
  explicit Tokenizer(TokenizerData data);

  // The ids of `text`. Long texts are encoded on all threads.
  std::vector<int32_t> Encode(std::string_view text,
                              SpecialTokens special = SpecialTokens::kAsText) const;

  // The bytes of `ids`, special tokens as their names. Throws kInvalid with the position of an id
  // that the vocabulary does not have. The result of a part of a text may end inside a character.
  std::string Decode(std::span<const int32_t> ids) const;

  // The bytes of one token, or "" for an id that the vocabulary does not have. Valid as long as the
  // tokenizer or a copy of it lives.
  std::string_view TokenBytes(int32_t id) const;

  // How many bytes of text a token stands for: TokenBytes(id).size(), but 0 for special tokens.
  int TextLength(int32_t id) const;
  bool IsSpecial(int32_t id) const;

  // One more than the largest id.
  int32_t vocab_size() const;

  // The id that ends a document ("<|endoftext|>"), or -1 where there is none.
  int32_t end_of_text() const;

  // A tokenizer.json that Hugging Face's tokenizers load; the same tokenizer gives the same bytes.
  std::string ToJson() const;

  // Writes ToJson() to `path`, whole or not at all. Throws kIo.
  void Save(const std::string& path) const;

  // A checksum of ToJson(), as 32 hexadecimal digits.
  std::string Hash() const;

  // The tables, for the library itself.
  const TokenizerData& data() const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace denseformer

#endif  // DENSEFORMER_TOKENIZER_H_
