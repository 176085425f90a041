#include "data/token_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "data/unicode.h"

namespace denseformer {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are mapped as they are");

constexpr int64_t kHeaderBytes = 256 * 4;
constexpr int64_t kSamplePairs = 65536;  // tokens looked at to tell uint32 from uint16
constexpr int64_t kScanGrain = 1 << 16;

struct Header {
  int32_t magic, version;
  TokenType type;
};
constexpr Header kHeaders[] = {
    {20240520, 1, TokenType::kUint16},
    {20240801, 7, TokenType::kUint32},
};

template <class T>
int64_t FirstNotBelow(const T* tokens, int64_t size, int64_t limit) {
  return std::find_if(tokens, tokens + size, [limit](T token) { return token >= limit; }) - tokens;
}

template <class T>
TokenFile::Scan ScanRange(const T* tokens, int64_t begin, int64_t end, int64_t end_of_text) {
  TokenFile::Scan scan;
  const T* largest = std::max_element(tokens + begin, tokens + end);
  scan.largest = *largest;
  scan.position_of_largest = largest - tokens;
  scan.end_of_text_count = std::count_if(tokens + begin, tokens + end,
                                         [end_of_text](T token) { return token == end_of_text; });
  return scan;
}

// Whether a file begins with valid UTF-8 without control characters. Among the bytes of 8 tokens
// there are nearly always such as no text has, above all zeros.
bool LooksLikeText(const MappedFile& file) {
  constexpr size_t kLeast = 16, kMost = 4096;
  if (file.size() < kLeast) return false;
  const auto* p = reinterpret_cast<const unsigned char*>(file.data());
  const unsigned char* const end = p + std::min(file.size(), kMost);
  while (p < end) {
    const DecodedChar next = DecodeUtf8(p, end);
    // The last character may be cut off.
    if (next.code_point < 0) return end - p < 4 && file.size() > kMost;
    const bool control = next.code_point < 0x20 && (next.code_point < 9 || next.code_point > 13);
    if (control || next.code_point == 0x7F) return false;
    p += next.length;
  }
  return true;
}

}  // namespace

TokenFile::TokenFile(const std::string& path, std::optional<TokenType> type) : file_(path) {
  const std::filesystem::path as_path(path);
  const std::string parent = as_path.parent_path().string();
  meta_ = ReadMeta(parent.empty() ? "." : parent);
  if (meta_ && meta_->files.count(as_path.filename().string()) == 0) meta_.reset();
  DetectHeader();
  if (header_bytes_ == 0) {
    if (type) {
      type_ = *type;
    } else {
      if (!meta_ && LooksLikeText(file_)) {
        Throw(ErrorCode::kInvalid,
              "{}: looks like text, expected tokens; 'denseformer data prepare' makes them of text",
              path);
      }
      DetectType();
    }
  }
  const int64_t bytes = static_cast<int64_t>(file_.size()) - header_bytes_;
  const int width = TokenTypeSize(type_);
  if (bytes % width != 0) {
    Throw(ErrorCode::kCorrupt, "{}: {} bytes, expected a multiple of {} for {} tokens", path,
          file_.size(), width, TokenTypeName(type_));
  }
  size_ = bytes / width;
  if (meta_) {
    const int64_t expected = meta_->files.at(as_path.filename().string()).tokens;
    if (size_ != expected) {
      Throw(ErrorCode::kCorrupt, "{}: {} tokens, expected {} as in meta.json; prepare it again",
            path, size_, expected);
    }
  }
  if (size_ == 0) Throw(ErrorCode::kInvalid, "{}: no tokens", path);
  const std::byte* first = file_.data() + header_bytes_;
  narrow_ = reinterpret_cast<const uint16_t*>(first);
  wide_ = reinterpret_cast<const uint32_t*>(first);
}

void TokenFile::DetectHeader() {
  if (file_.size() < static_cast<size_t>(kHeaderBytes)) return;
  int32_t words[3];
  std::memcpy(words, file_.data(), sizeof(words));
  for (const Header& header : kHeaders) {
    if (words[0] != header.magic || words[1] != header.version) continue;
    const int64_t expected = kHeaderBytes + int64_t{words[2]} * TokenTypeSize(header.type);
    if (words[2] < 0 || static_cast<int64_t>(file_.size()) != expected) {
      Throw(ErrorCode::kCorrupt,
            "{}: its llm.c header counts {} tokens, which makes {} bytes, but the file has {}",
            file_.path(), words[2], expected, file_.size());
    }
    type_ = header.type;
    header_bytes_ = kHeaderBytes;
  }
}

void TokenFile::DetectType() {
  if (meta_) {
    type_ = meta_->token_type;
    return;
  }
  if (file_.size() % 4 != 0) return;
  const auto* halves = reinterpret_cast<const uint16_t*>(file_.data());
  const int64_t pairs = std::min<int64_t>(static_cast<int64_t>(file_.size()) / 4, kSamplePairs);
  bool low_is_large = false;
  for (int64_t i = 0; i < pairs; ++i) {
    if (halves[2 * i + 1] > 15) return;
    low_is_large = low_is_large || halves[2 * i] > 255;
  }
  if (low_is_large) type_ = TokenType::kUint32;
}

void TokenFile::Read(int64_t begin, int64_t count, int32_t* out) const {
  DF_CHECK(begin >= 0 && count >= 0 && begin + count <= size_);
  if (type_ == TokenType::kUint16) {
    std::copy_n(narrow_ + begin, count, out);
  } else {
    std::copy_n(wide_ + begin, count, out);
  }
}

TokenFile::Scan TokenFile::ScanTokens(int32_t end_of_text) const {
  std::vector<Scan> parts(static_cast<size_t>(NumThreads()));
  ParallelFor(size_, kScanGrain, [&](int64_t begin, int64_t end, int part) {
    parts[part] = type_ == TokenType::kUint16 ? ScanRange(narrow_, begin, end, end_of_text)
                                              : ScanRange(wide_, begin, end, end_of_text);
  });
  Scan all = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].largest > all.largest) {
      all.largest = parts[i].largest;
      all.position_of_largest = parts[i].position_of_largest;
    }
    all.end_of_text_count += parts[i].end_of_text_count;
  }
  return all;
}

void TokenFile::CheckVocabulary(int64_t vocab_size) const {
  if (ScanTokens(-1).largest < vocab_size) return;
  const int64_t at = type_ == TokenType::kUint16 ? FirstNotBelow(narrow_, size_, vocab_size)
                                                 : FirstNotBelow(wide_, size_, vocab_size);
  Throw(ErrorCode::kInvalid,
        "{}: token {} at position {} is outside the vocabulary of {} (prepared with another "
        "tokenizer?)",
        path(), (*this)[at], at, vocab_size);
}

}  // namespace denseformer
