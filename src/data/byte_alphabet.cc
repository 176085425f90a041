#include "data/byte_alphabet.h"

#include "data/unicode.h"

namespace denseformer {
namespace {

constexpr int kExtra = 256;          // first code point of the bytes that are not printable
constexpr int kExtraEnd = 256 + 68;  // 188 bytes are printable

struct Alphabet {
  std::array<unsigned char, 256> order;          // number -> byte
  std::array<int32_t, 256> code_points;          // byte -> code point
  std::array<unsigned char, kExtraEnd> bytes{};  // code point -> byte, where used
  std::array<bool, kExtraEnd> used{};
};

bool Printable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

const Alphabet& GetAlphabet() {
  static const Alphabet alphabet = [] {
    Alphabet a;
    int number = 0;
    int extra = kExtra;
    for (const bool printable : {true, false}) {
      for (int byte = 0; byte < 256; ++byte) {
        if (Printable(byte) != printable) continue;
        const int code_point = printable ? byte : extra++;
        a.order[number++] = static_cast<unsigned char>(byte);
        a.code_points[byte] = code_point;
        a.bytes[code_point] = static_cast<unsigned char>(byte);
        a.used[code_point] = true;
      }
    }
    return a;
  }();
  return alphabet;
}

}  // namespace

const std::array<unsigned char, 256>& Gpt2ByteOrder() { return GetAlphabet().order; }

std::string ToByteAlphabet(std::string_view bytes) {
  std::string written;
  for (const char byte : bytes) {
    char utf8[4];
    const int32_t code_point = GetAlphabet().code_points[static_cast<unsigned char>(byte)];
    written.append(utf8, static_cast<size_t>(EncodeUtf8(code_point, utf8)));
  }
  return written;
}

std::optional<std::string> FromByteAlphabet(std::string_view written) {
  const Alphabet& alphabet = GetAlphabet();
  std::string bytes;
  const auto* p = reinterpret_cast<const unsigned char*>(written.data());
  const unsigned char* end = p + written.size();
  while (p < end) {
    const DecodedChar c = DecodeUtf8(p, end);
    if (c.code_point < 0 || c.code_point >= kExtraEnd || !alphabet.used[c.code_point]) {
      return std::nullopt;
    }
    bytes += static_cast<char>(alphabet.bytes[c.code_point]);
    p += c.length;
  }
  return bytes;
}

}  // namespace denseformer
