// The printable characters that byte-level BPE files write for bytes: the printable bytes of
// Latin-1 stand for themselves, the others for U+0100, U+0101, ... in their order. (GPT-2's space
// is U+0120.)
#ifndef DENSEFORMER_DATA_BYTE_ALPHABET_H_
#define DENSEFORMER_DATA_BYTE_ALPHABET_H_

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace denseformer {

// The bytes in the order in which GPT-2 numbers them (id 0 is '!', id 220 is ' ').
const std::array<unsigned char, 256>& Gpt2ByteOrder();

// Bytes as such files write them, in UTF-8.
std::string ToByteAlphabet(std::string_view bytes);

// The bytes that `written` stands for, or nothing where it has a character of another kind.
std::optional<std::string> FromByteAlphabet(std::string_view written);

}  // namespace denseformer

#endif  // DENSEFORMER_DATA_BYTE_ALPHABET_H_
