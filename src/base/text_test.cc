#include "base/text.h"

#include <cmath>
#include <limits>

#include "base/error_testing.h"
#include "base/printable.h"

namespace denseformer {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(ParseInt, TakesTheWholeText) {
  EXPECT_EQ(ParseInt("n", "42", 0, 100), 42);
  EXPECT_EQ(ParseInt("n", "-3", -5, 5), -3);
  EXPECT_EQ(ParseInt("n", "9223372036854775807", INT64_MIN, INT64_MAX), INT64_MAX);
  EXPECT_EQ(ParseInt("n", "-9223372036854775808", INT64_MIN, INT64_MAX), INT64_MIN);
  for (const char* bad : {"", " 1", "1 ", "1x", "1.0", "1e3", "0x10", "+1", "-", "abc", "--1"}) {
    ExpectError(ErrorCode::kUsage,
                std::string("--steps: got '") + bad + "', expected a whole number",
                [&] { ParseInt("--steps", bad, 0, 100); });
  }
}

TEST(ParseInt, NamesTheRange) {
  for (const char* bad : {"0", "11", "-1", "99999999999999999999"}) {
    ExpectError(ErrorCode::kUsage,
                std::string("n: got ") + bad + ", expected a whole number from 1 to 10",
                [&] { ParseInt("n", bad, 1, 10); });
  }
}

TEST(ParseDouble, TakesTheWholeTextAndOnlyFiniteNumbers) {
  EXPECT_EQ(ParseDouble("x", "0.25", 0, 1), 0.25);
  EXPECT_EQ(ParseDouble("x", "1e-3", 0, 1), 1e-3);
  EXPECT_EQ(ParseDouble("x", "-2", -kInfinity, kInfinity), -2);
  for (const char* bad : {"", "1.0x", " 1", "1,5", "one"}) {
    ExpectError(ErrorCode::kUsage, "expected a number", [&] { ParseDouble("x", bad, 0, 1); });
  }
  for (const char* bad : {"nan", "inf", "-inf", "1e999"}) {
    ExpectError(ErrorCode::kUsage, std::string("x: got ") + bad + ", expected a number from",
                [&] { ParseDouble("x", bad, -kInfinity, kInfinity); });
  }
  ExpectError(ErrorCode::kUsage, "from 0 to 1", [] { ParseDouble("x", "1.5", 0, 1); });
}

TEST(Nearest, FindsTyposButNotStrangers) {
  const std::vector<std::string> known = {"steps", "seed", "batch", "learning_rate", "k"};
  EXPECT_EQ(Nearest("step", known), "steps");
  EXPECT_EQ(Nearest("baтch", known), "batch");
  EXPECT_EQ(Nearest("learnig_rat", known), "learning_rate");
  EXPECT_EQ(Nearest("zzzzzz", known), "");
  EXPECT_EQ(Nearest("xy", {"ab", "cd"}), "");
  EXPECT_EQ(Nearest("p", {"k"}), "");
  EXPECT_EQ(Nearest("x", {}), "");
  EXPECT_EQ(Nearest("fish", {"bash", "zsh"}), "");
  EXPECT_EQ(Nearest("--xy", {"--lr"}), "");
  EXPECT_EQ(Nearest("inof", {"data", "info"}), "info");
  EXPECT_EQ(Nearest("ifnno", {"info"}), "");
  // A common section is no likeness.
  EXPECT_EQ(Nearest("optimizer.seed", {"optimizer.lr", "optimizer.clip"}), "");
  EXPECT_EQ(Nearest("optimizer.lrr", {"optimizer.clip", "optimizer.lr"}), "optimizer.lr");
  EXPECT_EQ(DidYouMean("sead", known), " (did you mean 'seed'?)");
  EXPECT_EQ(DidYouMean("zzzzzz", known), "");
}

TEST(Split, KeepsEmptyParts) {
  EXPECT_EQ(Split("a,b", ','), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(Split(",a,,", ','), (std::vector<std::string>{"", "a", "", ""}));
  EXPECT_EQ(Split("", ','), (std::vector<std::string>{""}));
}

TEST(Join, IsTheInverseOfSplit) {
  EXPECT_EQ(Join({"a", "", "b"}, ","), "a,,b");
  EXPECT_EQ(Join({}, ","), "");
}

TEST(Trim, RemovesWhiteSpaceAtBothEnds) {
  EXPECT_EQ(Trim(" \t a b\r\n"), "a b");
  EXPECT_EQ(Trim(" \n"), "");
  EXPECT_EQ(Trim(""), "");
}

TEST(WithCommas, GroupsDigits) {
  EXPECT_EQ(WithCommas(0), "0");
  EXPECT_EQ(WithCommas(999), "999");
  EXPECT_EQ(WithCommas(1000), "1,000");
  EXPECT_EQ(WithCommas(378446592), "378,446,592");
  EXPECT_EQ(WithCommas(-999), "-999");
  EXPECT_EQ(WithCommas(-123456), "-123,456");
  EXPECT_EQ(WithCommas(INT64_MIN), "-9,223,372,036,854,775,808");
}

TEST(Human, Bytes) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1024), "1.00 KiB");
  EXPECT_EQ(HumanBytes(1610612736), "1.50 GiB");
  EXPECT_EQ(HumanBytes(0x1p40 - 1), "1.00 TiB");
  EXPECT_EQ(HumanBytes(0x1p60), "1048576.00 TiB");
}

TEST(Human, Count) {
  EXPECT_EQ(HumanCount(0), "0");
  EXPECT_EQ(HumanCount(0.04213), "0.0421");
  EXPECT_EQ(HumanCount(1.49), "1.49");
  EXPECT_EQ(HumanCount(999), "999");
  EXPECT_EQ(HumanCount(999.7), "1.00 k");
  EXPECT_EQ(HumanCount(999999), "1.00 M");
  EXPECT_EQ(HumanCount(1.5e9), "1.50 G");
  EXPECT_EQ(HumanRate(1.5e4, "tokens/s"), "15.00 ktokens/s");
  EXPECT_EQ(HumanRate(40, "tokens/s"), "40 tokens/s");
  EXPECT_EQ(HumanRate(0.25, "batches/s"), "0.25 batches/s");
}

TEST(Human, Duration) {
  EXPECT_EQ(HumanDuration(0), "0:00");
  EXPECT_EQ(HumanDuration(65), "1:05");
  EXPECT_EQ(HumanDuration(3599.6), "1:00:00");
  EXPECT_EQ(HumanDuration(3725), "1:02:05");
  for (double strange : {-1.0, 1e300, kInfinity, std::nan("")})
    EXPECT_EQ(HumanDuration(strange), "?");
}

TEST(TextTest, PrintableShowsControlCharacters) {
  EXPECT_EQ(Printable("caf\u00e9 \\ a"), "caf\u00e9 \\ a");
  EXPECT_EQ(Printable(std::string_view("a\nb\rc\td\x1b[0m\0\x7f", 13)),
            "a\\nb\\rc\\td\\x1b[0m\\x00\\x7f");
}

TEST(TextTest, ProblemsOfJsonInPlainWords) {
  EXPECT_EQ(JsonProblem("[json.exception.parse_error.101] parse error at line 1, column 2: syntax "
                        "error while parsing object key - invalid literal; last read: '{x'"),
            "line 1, column 2: invalid literal; last read: '{x'");
  EXPECT_EQ(JsonProblem("[json.exception.out_of_range.403] key 'files' not found"),
            "key 'files' not found");
  EXPECT_EQ(JsonProblem("[json.exception.out_of_range.406] number overflow parsing '1e999'"),
            "the number '1e999' is beyond the range of double");
  EXPECT_EQ(JsonProblem("other words"), "other words");
  EXPECT_EQ(JsonProblem(std::string(1000, 'a')), std::string(200, 'a') + "...");
}

}  // namespace
}  // namespace denseformer
