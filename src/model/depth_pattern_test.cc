// Depth patterns against a definition written out plainly, the counts of the paper, and every
// message for a wrong pattern.
#include "denseformer/depth_pattern.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "base/testing.h"
#include "model/depth_forms.h"

namespace denseformer {
namespace {

// S_i = { j <= i : reads(i, j) } by asking for every pair.
using Reads = std::function<bool(int i, int j)>;

void ExpectSources(const std::string& spec, int depth, const Reads& reads) {
  const DepthPattern pattern = DepthPattern::Parse(spec, depth);
  std::map<int, std::vector<std::pair<int, int>>> readers;
  int modules = 0;
  int64_t weights = 0;
  for (int i = 0; i <= depth; ++i) {
    std::vector<int> expected;
    for (int j = 0; i > 0 && j <= i; ++j) {
      if (!reads(i, j)) continue;
      readers[j].push_back({i, static_cast<int>(expected.size())});
      expected.push_back(j);
    }
    EXPECT_EQ(pattern.sources(i), expected) << spec << ", depth " << depth << ", after block " << i;
    EXPECT_EQ(pattern.has_module(i), !expected.empty());
    modules += expected.empty() ? 0 : 1;
    weights += static_cast<int64_t>(expected.size());
  }
  for (int j = 0; j <= depth; ++j) {
    std::vector<std::pair<int, int>> got;
    for (const DepthPattern::Reader& reader : pattern.readers(j)) {
      got.push_back({reader.depth, reader.index});
    }
    EXPECT_EQ(got, readers[j]) << spec << ", depth " << depth << ", readers of X_" << j;
  }
  EXPECT_EQ(pattern.depth(), depth);
  EXPECT_EQ(pattern.module_count(), modules);
  EXPECT_EQ(pattern.weight_count(), weights);
  EXPECT_EQ(pattern.ToString(), spec);
  EXPECT_EQ(DepthPattern::Parse(pattern.ToString(), depth), pattern);
}

TEST(DepthPatternTest, SourcesFollowTheDefinition) {
  for (int depth = 1; depth <= 25; ++depth) {
    ExpectSources("none", depth, [](int, int) { return false; });
    ExpectSources("final", depth, [=](int i, int) { return i == depth; });
    if (depth % 3 == 0) {
      ExpectSources("final:3", depth, [=](int i, int j) { return i == depth && j % 3 == 0; });
    }
    for (int k = 1; k <= 13; ++k) {
      ExpectSources("last:" + std::to_string(k), depth,
                    [=](int i, int j) { return j == 0 || i - j < k; });
      for (int p = 1; p <= depth; ++p) {
        const std::string kxp = std::to_string(k) + "x" + std::to_string(p);
        ExpectSources(kxp, depth, [=](int i, int j) { return i % p == 0 && (i - j) % k == 0; });
        if (depth % p != 0) continue;
        ExpectSources("grouped:" + kxp, depth, [=](int i, int j) {
          return i % p == 0 && j % p == 0 && (i / p - j / p) % k == 0;
        });
      }
    }
  }
}

TEST(DepthPatternTest, WeightCountsOfThePaper) {
  const std::tuple<const char*, int, int64_t> cases[] = {
      {"1x1", 48, 1224}, {"2x1", 48, 624},  {"4x1", 48, 324},  {"4x3", 48, 112}, {"4x4", 48, 90},
      {"4x5", 48, 62},   {"12x1", 48, 124}, {"final", 48, 49}, {"none", 48, 0},  {"1x1", 64, 2144},
      {"1x1", 72, 2700}, {"1x1", 84, 3654}, {"1x1", 90, 4185},
  };
  for (const auto& [spec, depth, count] : cases) {
    EXPECT_EQ(DepthPattern::Parse(spec, depth).weight_count(), count) << spec << " at " << depth;
  }
  EXPECT_EQ(DepthPattern::Parse("4x5", 48).module_count(), 9);
  EXPECT_EQ(DepthPattern::Parse("final", 48).module_count(), 1);
  EXPECT_EQ(DepthPattern(48).module_count(), 0);
}

TEST(DepthPatternTest, GroupedWithPeriodOneIsPlain) {
  for (int k : {1, 2, 5}) {
    const std::string kxp = std::to_string(k) + "x1";
    EXPECT_EQ(DepthPattern::Parse("grouped:" + kxp, 12), DepthPattern::Parse(kxp, 12));
  }
  EXPECT_FALSE(DepthPattern::Parse("grouped:1x2", 12) == DepthPattern::Parse("1x2", 12));
}

TEST(DepthPatternTest, NumbersAreWrittenWithoutLeadingZeros) {
  EXPECT_EQ(DepthPattern::Parse("04x05", 10).ToString(), "4x5");
  EXPECT_EQ(DepthPattern::Parse("last:03", 10).ToString(), "last:3");
}

TEST(DepthPatternTest, WrongSpecsSayWhatWouldBeRight) {
  const std::string forms =
      "expected none, KxP (such as 1x1 or 4x5), grouped:KxP, last:K, final, final:P or a mask file";
  const std::tuple<const char*, int, std::string> cases[] = {
      {"0x1", 12, "depth pattern '0x1': K is 0, expected at least 1"},
      {"1x0", 12, "depth pattern '1x0': P is 0, expected at least 1"},
      {"last:0", 12, "depth pattern 'last:0': K is 0, expected at least 1"},
      {"4x13", 12,
       "depth pattern '4x13': period P = 13 is larger than the depth 12, so there would be no "
       "module"},
      {"grouped:4x5", 12, "depth pattern 'grouped:4x5': period P = 5 does not divide the depth 12"},
      {"grouped:1x24", 12,
       "depth pattern 'grouped:1x24': period P = 24 is larger than the depth 12, so there would "
       "be no module"},
      {"", 12, "depth pattern '': " + forms},
      {"4", 12, "depth pattern '4': " + forms},
      {"4x", 12, "depth pattern '4x': " + forms},
      {"x5", 12, "depth pattern 'x5': " + forms},
      {"-4x5", 12, "depth pattern '-4x5': " + forms},
      {"+4x5", 12, "depth pattern '+4x5': " + forms},
      {"4x5x6", 12, "depth pattern '4x5x6': " + forms},
      {"4x5 ", 12, "depth pattern '4x5 ': " + forms},
      {"4.0x5", 12, "depth pattern '4.0x5': " + forms},
      {"9999999999999x1", 12, "depth pattern '9999999999999x1': " + forms},
      {"last:", 12, "depth pattern 'last:': " + forms},
      {"None", 12, "depth pattern 'None': " + forms},
      {"none", 0, "depth pattern 'none': depth is 0, expected at least 1"},
      {"1x1", -3, "depth pattern '1x1': depth is -3, expected at least 1"},
  };
  for (const auto& [spec, depth, message] : cases) {
    EXPECT_EQ(ErrorOf([&, s = spec, d = depth] { DepthPattern::Parse(s, d); }), message);
  }
  EXPECT_EQ(ErrorOf([] { DepthPattern(0); }), "depth pattern: depth is 0, expected at least 1");
}

TEST(DepthPatternTest, MaskFile) {
  const DepthPattern pattern = DepthPattern::FromMask(
      "# sources of blocks 1 to 4\n"
      "11\n"
      "000\n"
      "\n"
      "  1, 0, 0, 1, 0\r\n"
      "\t10101",
      4, "m.txt");
  EXPECT_EQ(pattern.sources(1), (std::vector<int>{0, 1}));
  EXPECT_FALSE(pattern.has_module(2));
  EXPECT_EQ(pattern.sources(3), (std::vector<int>{0, 3}));
  EXPECT_EQ(pattern.sources(4), (std::vector<int>{0, 2, 4}));
  EXPECT_EQ(pattern.weight_count(), 7);
  EXPECT_EQ(pattern.ToString(), "mask:11/000/1001/10101");
  EXPECT_EQ(DepthPattern::Parse(pattern.ToString(), 4), pattern);
}

TEST(DepthPatternTest, WrongMasksNameTheLine) {
  const std::tuple<const char*, const char*> cases[] = {
      {"11\n111\n", "m.txt: 2 rows, expected 3 (one per block)"},
      {"", "m.txt: 0 rows, expected 3 (one per block)"},
      {"11\n# note\n111\n1111\n11111\n", "m.txt:5: more rows than the 3 blocks of the model"},
      {"11\n1101\n1111\n",
       "m.txt:2: block 2 cannot read X_3: only outputs up to X_2 exist (the mask must be lower "
       "triangular)"},
      {"11\n11x\n1111\n", "m.txt:2: unexpected character 'x', expected 0 or 1"},
      {"11\n1102\n1111\n", "m.txt:2: unexpected character '2', expected 0 or 1"},
      {"11\n111\n11110\n", "m.txt:3: more than 4 columns"},
      {"11\n110\n1111\n", "m.txt:2: block 2 must read its own output X_2 where it reads anything"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_EQ(ErrorOf([t = text] { DepthPattern::FromMask(t, 3, "m.txt"); }), message) << text;
  }
  EXPECT_EQ(ErrorOf([] { DepthPattern::Parse("mask:11/1", 2); }),
            "mask:2: block 2 must read its own output X_2 where it reads anything");
  EXPECT_EQ(ErrorOf([] { DepthPattern::FromMask("11", 0, "m.txt"); }),
            "m.txt: depth is 0, expected at least 1");
}

// Every row of the table parses what it stands for, and appears in help and docs.
TEST(DepthPatternTest, FormsAreOneTable) {
  const std::string list = DepthFormList(), table = DepthPattern::Forms();
  for (const DepthForm& form : DepthForms()) {
    std::string spec(form.form);
    if (const size_t k = spec.find('K'); k != std::string::npos) spec[k] = '2';
    if (const size_t p = spec.find('P'); p != std::string::npos) spec[p] = '3';
    if (const size_t rows = spec.find("ROWS"); rows != std::string::npos) {
      spec.replace(rows, 4, "11/000/0001/00000/100001/0000000");
    }
    const auto match = MatchDepthForm(spec, 6);
    ASSERT_TRUE(match.has_value()) << spec;
    EXPECT_EQ(match->form->form, form.form);
    EXPECT_EQ(DepthPattern::Parse(spec, 6).ToString(), spec);
    EXPECT_NE(table.find("| `" + std::string(form.form) + "` |"), std::string::npos);
    const bool listed = list.find(form.form) != std::string::npos;
    EXPECT_EQ(listed, !form.form.starts_with("mask:")) << form.form;
  }
  EXPECT_FALSE(MatchDepthForm("2x3x", 6).has_value());
  // The form alone decides, not the depth.
  EXPECT_TRUE(MatchDepthForm("4x50", 6).has_value());
}

TEST(DepthPatternTest, Picture) {
  EXPECT_EQ(DepthPattern::Parse("2x3", 6).Picture(),
            "after block | reads X_j, j = 0..6\n"
            "          3 | .#.#\n"
            "          6 | #.#.#.#\n");
  EXPECT_EQ(DepthPattern(6).Picture(),
            "no depth-weighted average: every block reads the output of the one before\n");
}

}  // namespace
}  // namespace denseformer
