// The files that tokenizers come in.
//
//   vocab.bpe, merges.txt:   "#version..." line?  ("LEFT RIGHT" line)*        best pair first
//   vocab.json:              {"TOKEN": ID, ...}
//   tokenizer.json:          Hugging Face: model.vocab, model.merges ("LEFT RIGHT" or [LEFT,
//   RIGHT]),
//                            added_tokens, ByteLevel pre_tokenizer and decoder
//
// Tokens are written in the byte alphabet (byte_alphabet.h). Every reader throws kCorrupt for a
// damaged file and kUnsupported for a tokenizer of another kind; `name` stands in the message.
#ifndef DENSEFORMER_DATA_TOKENIZER_FILES_H_
#define DENSEFORMER_DATA_TOKENIZER_FILES_H_

#include <string>
#include <string_view>

#include "data/bpe.h"

namespace denseformer {

// Ids as GPT-2's: the bytes in its order, then one token a merge, then the end of text.
TokenizerData ReadMerges(std::string_view merges, const std::string& name);
TokenizerData ReadVocabAndMerges(std::string_view vocab_json, std::string_view merges,
                                 const std::string& name);
TokenizerData ReadTokenizerJson(std::string_view json, const std::string& name);

// Whatever `path` (a file or a directory) holds, as Tokenizer::Load says.
TokenizerData ReadTokenizerFiles(const std::string& path);

std::string WriteTokenizerJson(const TokenizerData& data);

// 256 tokens for the bytes in their order; no end of text yet.
TokenizerData BareBytes();

// Gives the end of text the next free id.
void AppendEndOfText(TokenizerData* data);

}  // namespace denseformer

#endif  // DENSEFORMER_DATA_TOKENIZER_FILES_H_
