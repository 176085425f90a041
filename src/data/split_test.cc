// The hand-written splitter against the regular expression itself, in PCRE2.
#include "data/split.h"

#include <gtest/gtest.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/random.h"
#include "base/testing.h"

namespace denseformer {
namespace {

using Pieces = std::vector<std::string>;

Pieces Split(std::string_view text) {
  Pieces pieces;
  SplitText(text, [&](const char* piece, size_t length) { pieces.emplace_back(piece, length); });
  return pieces;
}

Pieces SplitByRegex(const std::string& text) {
  // \s of GPT-2's engine is White_Space; that of PCRE2 has U+180E as well.
  static constexpr char kPattern[] =
      "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\p{White_Space}\\p{L}\\p{N}]+|"
      "\\p{White_Space}+(?!\\P{White_Space})|\\p{White_Space}+";
  static pcre2_code* const code = [] {
    int error = 0;
    PCRE2_SIZE offset = 0;
    pcre2_code* made = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(kPattern), PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
    EXPECT_NE(made, nullptr) << error << " at " << offset;
    pcre2_jit_compile(made, PCRE2_JIT_COMPLETE);
    return made;
  }();
  static pcre2_match_data* const match = pcre2_match_data_create_from_pattern(code, nullptr);
  Pieces pieces;
  PCRE2_SIZE at = 0;
  while (at < text.size()) {
    const int found = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                                  0, match, nullptr);
    if (found < 1) {
      ADD_FAILURE() << "PCRE2 returned " << found;
      return pieces;
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match);
    EXPECT_EQ(range[0], at) << "the pattern left something out";
    pieces.push_back(text.substr(range[0], range[1] - range[0]));
    at = range[1];
  }
  return pieces;
}

std::string Utf8(int32_t code_point) {
  char bytes[4];
  return std::string(bytes, static_cast<size_t>(EncodeUtf8(code_point, bytes)));
}

int Characters(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

bool IsSurrogate(int32_t code_point) { return code_point >= 0xD800 && code_point < 0xE000; }

TEST(SplitTest, KnownCases) {
  EXPECT_EQ(Split("Hello, world!  It's  123go"),
            (Pieces{"Hello", ",", " world", "!", " ", " It", "'s", " ", " 123", "go"}));
  EXPECT_EQ(Split(" \n\n x \n"), (Pieces{" \n\n", " x", " \n"}));
  EXPECT_EQ(Split("\n\nx"), (Pieces{"\n", "\n", "x"}));
  EXPECT_EQ(Split("'ll've'RE ''s '"), (Pieces{"'ll", "'ve", "'", "RE", " ''", "s", " '"}));
  EXPECT_EQ(Split(""), Pieces{});
  EXPECT_EQ(Split("a\xff\xfe b"), (Pieces{"a", "\xff\xfe", " b"}));
}

// A character of the same class that PCRE2 knows whatever Unicode version it has.
std::string Known(int32_t code_point) {
  const std::string text = Utf8(code_point);
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  switch (Classify(p, p + text.size()).char_class) {
    case kLetter:
      return "\u00e9";
    case kNumber:
      return "\u00bd";
    case kSpace:
      return text;
    default:
      return "\u3002";
  }
}

CharClass ClassOf(int32_t code_point) {
  const std::string text = Utf8(code_point);
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  return Classify(p, p + text.size()).char_class;
}

TEST(UnicodeTest, TheTableIsThatOfUnicode16) {
  int counts[4] = {};
  for (int32_t c = 0; c < 0x110000; ++c) {
    if (!IsSurrogate(c)) ++counts[ClassOf(c)];
  }
  // Counted from the categories L* and N* and the property White_Space.
  EXPECT_EQ(counts[kLetter], 141028);
  EXPECT_EQ(counts[kNumber], 1911);
  EXPECT_EQ(counts[kSpace], 25);
  // Letters that came with 15.0, 15.1 and 16.0, a number of 16.0, and what is not assigned yet.
  EXPECT_EQ(ClassOf(0x31350), kLetter);
  EXPECT_EQ(ClassOf(0x2EBF0), kLetter);
  EXPECT_EQ(ClassOf(0x1C89), kLetter);
  EXPECT_EQ(ClassOf(0x10D40), kNumber);
  EXPECT_EQ(ClassOf(0x323B0), kOther);
  EXPECT_EQ(ClassOf(0x180E), kOther);
}

TEST(UnicodeTest, AnOlderVersionAgreesOnWhatItKnows) {
  static constexpr char kPattern[] = "(\\p{L})|(\\p{N})|(\\p{White_Space})|(\\P{Cn})";
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* const code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(kPattern), PCRE2_ZERO_TERMINATED,
                    PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &offset, nullptr);
  ASSERT_NE(code, nullptr) << error << " at " << offset;
  pcre2_match_data* const match = pcre2_match_data_create_from_pattern(code, nullptr);
  for (int32_t c = 0; c < 0x110000; ++c) {
    if (IsSurrogate(c)) continue;
    const std::string text = Utf8(c);
    const int groups = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0,
                                   0, match, nullptr);
    if (groups < 2) continue;  // not assigned there
    ASSERT_EQ(ClassOf(c), groups - 2) << "U+" << std::hex << c;
  }
  pcre2_match_data_free(match);
  pcre2_code_free(code);
}

TEST(SplitTest, EveryCharacterAsInTheRegex) {
  for (int32_t c = 0; c < 0x110000; ++c) {
    if (IsSurrogate(c)) continue;
    const std::string text = "a" + Utf8(c) + "1 " + Utf8(c);
    const std::string known = "a" + Known(c) + "1 " + Known(c);
    const Pieces pieces = Split(text), expected = SplitByRegex(known);
    if (c < 0x80) {
      ASSERT_EQ(pieces, SplitByRegex(text)) << "U+" << std::hex << c;
      continue;
    }
    ASSERT_EQ(pieces.size(), expected.size()) << "U+" << std::hex << c;
    for (size_t i = 0; i < pieces.size(); ++i) {
      ASSERT_EQ(Characters(pieces[i]), Characters(expected[i])) << "U+" << std::hex << c;
    }
  }
}

TEST(SplitTest, RandomTextsAsInTheRegex) {
  const char* const parts[] = {
      " ",  " ",  "\n",     "\t",     "\r\n",   "'",      "'s",   "'re",    "'l",  "ll",
      "ve", "a",  "B",      "é",      "中",     "٣",      "½",    "1",      "2",   "!",
      "-",  "。", "\u00a0", "\u3000", "\u2009", "\u180e", "🙂", "\u0301", "\x01"};
  Random random(7);
  for (int round = 0; round < 100000; ++round) {
    std::string text;
    for (uint64_t n = random.Below(12); n > 0; --n) {
      int32_t any = static_cast<int32_t>(random.Below(0x110000));
      if (IsSurrogate(any)) any = 'x';
      text += random.Below(8) == 0 ? Known(any) : parts[random.Below(std::size(parts))];
    }
    ASSERT_EQ(Split(text), SplitByRegex(text)) << text;
  }
}

TEST(SplitTest, CutTextSplitsAsTheWhole) {
  const char* const parts[] = {" ", "\n", "a", "'s", "1", "\u3000", "!", "é", "\xff"};
  Random random(8);
  int cuts = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (uint64_t n = random.Below(14); n > 0; --n) text += parts[random.Below(std::size(parts))];
    const size_t cut = SafeCut(text, random.Below(20));
    if (cut == 0) continue;
    ++cuts;
    Pieces both = Split(std::string_view(text).substr(0, cut));
    for (const std::string& piece : Split(std::string_view(text).substr(cut))) {
      both.push_back(piece);
    }
    ASSERT_EQ(both, Split(text)) << text << " cut at " << cut;
  }
  EXPECT_GT(cuts, 1000);
}

TEST(Utf8Test, StrictDecoding) {
  const auto length = [](const std::string& text) {
    const auto* p = reinterpret_cast<const unsigned char*>(text.data());
    const DecodedChar c = DecodeUtf8(p, p + text.size());
    return c.code_point < 0 ? -1 : c.length;
  };
  EXPECT_EQ(length("é"), 2);
  EXPECT_EQ(length("中"), 3);
  EXPECT_EQ(length("🙂"), 4);
  // Overlong, surrogate, beyond the last code point, truncated, stray continuation.
  for (const char* bad :
       {"\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe4\xb8", "\xf0\x9f\x99", "\x80", "\xff"}) {
    EXPECT_EQ(length(bad), -1) << bad;
  }
}

}  // namespace
}  // namespace denseformer
