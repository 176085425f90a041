// The classes are those of one version of Unicode, whatever the system has, so that ids never
// change with it. A page of 256 code points is filled the first time that one of them is met.
#include "data/unicode.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <memory>
#include <mutex>

namespace denseformer {
namespace {

constexpr int kPageSize = 256;
constexpr int kPages = 0x110000 / kPageSize;
using Page = std::array<CharClass, kPageSize>;

constexpr std::array<CharClass, 256> MakeByteClasses() {
  std::array<CharClass, 256> table{};
  for (int c = 0; c < 256; ++c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    table[c] = c >= 0x80                        ? kMultibyte
               : letter                         ? kLetter
               : c >= '0' && c <= '9'           ? kNumber
               : c == ' ' || (c >= 9 && c < 14) ? kSpace
                                                : kOther;
  }
  return table;
}

bool IsContinuation(unsigned char c) { return (c & 0xC0) == 0x80; }

// Runs of one class in the order of their code points: first code point * 4 + class.
constexpr uint32_t kRuns[] = {
#include "data/unicode_table.inc"
};

CharClass ClassOf(int32_t code_point) {
  // The last run that begins at or before the code point.
  const uint32_t key = static_cast<uint32_t>(code_point) << 2 | 3;
  return static_cast<CharClass>(*(std::upper_bound(std::begin(kRuns), std::end(kRuns), key) - 1) &
                                3);
}

std::atomic<const Page*> pages[kPages];

const Page* FillPage(int index) {
  static std::mutex mutex;
  static std::array<std::unique_ptr<Page>, kPages> owner;
  const std::lock_guard lock(mutex);
  if (const Page* present = pages[index].load(std::memory_order_acquire)) return present;
  auto page = std::make_unique<Page>();
  for (int i = 0; i < kPageSize; ++i) (*page)[i] = ClassOf(index * kPageSize + i);
  owner[index] = std::move(page);
  pages[index].store(owner[index].get(), std::memory_order_release);
  return owner[index].get();
}

}  // namespace

constexpr std::array<CharClass, 256> kByteClass = MakeByteClasses();

DecodedChar DecodeUtf8(const unsigned char* p, const unsigned char* end) {
  const unsigned char first = p[0];
  if (first < 0x80) return {first, 1};
  const int64_t left = end - p;
  if (first >= 0xC2 && first < 0xE0 && left >= 2 && IsContinuation(p[1])) {
    return {(first & 0x1F) << 6 | (p[1] & 0x3F), 2};
  }
  if ((first & 0xF0) == 0xE0 && left >= 3 && IsContinuation(p[1]) && IsContinuation(p[2])) {
    const int32_t value = (first & 0x0F) << 12 | (p[1] & 0x3F) << 6 | (p[2] & 0x3F);
    if (value >= 0x800 && (value < 0xD800 || value >= 0xE000)) return {value, 3};
  }
  if (first >= 0xF0 && first < 0xF5 && left >= 4 && IsContinuation(p[1]) && IsContinuation(p[2]) &&
      IsContinuation(p[3])) {
    const int32_t value =
        (first & 0x07) << 18 | (p[1] & 0x3F) << 12 | (p[2] & 0x3F) << 6 | (p[3] & 0x3F);
    if (value >= 0x10000 && value < 0x110000) return {value, 4};
  }
  return {-1, 1};
}

int EncodeUtf8(int32_t c, char* out) {
  if (c < 0x80) {
    out[0] = static_cast<char>(c);
    return 1;
  }
  if (c < 0x800) {
    out[0] = static_cast<char>(0xC0 | c >> 6);
    out[1] = static_cast<char>(0x80 | (c & 0x3F));
    return 2;
  }
  if (c < 0x10000) {
    out[0] = static_cast<char>(0xE0 | c >> 12);
    out[1] = static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out[2] = static_cast<char>(0x80 | (c & 0x3F));
    return 3;
  }
  out[0] = static_cast<char>(0xF0 | c >> 18);
  out[1] = static_cast<char>(0x80 | (c >> 12 & 0x3F));
  out[2] = static_cast<char>(0x80 | (c >> 6 & 0x3F));
  out[3] = static_cast<char>(0x80 | (c & 0x3F));
  return 4;
}

ClassifiedChar ClassifyMultibyte(const unsigned char* p, const unsigned char* end) {
  const DecodedChar decoded = DecodeUtf8(p, end);
  if (decoded.code_point < 0) return {kOther, 1};
  const int index = decoded.code_point / kPageSize;
  const Page* page = pages[index].load(std::memory_order_acquire);
  if (page == nullptr) page = FillPage(index);
  return {(*page)[decoded.code_point % kPageSize], decoded.length};
}

}  // namespace denseformer
