#include "base/random.h"

#include <cmath>
#include <vector>

#include "base/error_testing.h"

namespace denseformer {
namespace {

// The known answers that the authors of Philox publish with Random123.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox(0, 0, 0), (Random4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}),
            (Random4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox(/*key=*/0x299f31d0a4093822, /*stream=*/0x0370734413198a2e,
                   /*counter=*/0x85a308d3243f6a88),
            (Random4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, GoesThroughTheCountersInOrder) {
  Random random(/*key=*/5, /*stream=*/9, /*counter=*/100);
  for (uint64_t counter = 100; counter < 103; ++counter) {
    for (uint32_t expected : Philox(5, 9, counter)) EXPECT_EQ(random.Next32(), expected);
  }
}

TEST(Random, SixtyFourBitsTakeTheLowHalfFirst) {
  const Random4 words = Philox(1, 2, 0);
  EXPECT_EQ(Random(1, 2).Next64(), words[0] | (uint64_t{words[1]} << 32));
}

TEST(Random, KeysStreamsAndCountersDiffer) {
  const uint64_t first = Random(1, 1).Next64();
  EXPECT_EQ(Random(1, 1).Next64(), first);
  EXPECT_NE(Random(2, 1).Next64(), first);
  EXPECT_NE(Random(1, 2).Next64(), first);
  EXPECT_NE(Random(1, 1, 1).Next64(), first);
}

TEST(Random, UniformStaysBelowOneAndHasTheRightMoments) {
  Random random(3);
  double sum = 0, squares = 0, sum_double = 0;
  constexpr int kCount = 100000;
  for (int i = 0; i < kCount; ++i) {
    const float value = random.Uniform();
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    sum += value;
    squares += double{value} * value;
    const double fine = random.UniformDouble();
    ASSERT_GE(fine, 0);
    ASSERT_LT(fine, 1);
    sum_double += fine;
  }
  // Five standard errors; the numbers are always the same.
  EXPECT_NEAR(sum / kCount, 0.5, 5 * std::sqrt(1.0 / 12 / kCount));
  EXPECT_NEAR(sum_double / kCount, 0.5, 5 * std::sqrt(1.0 / 12 / kCount));
  EXPECT_NEAR(squares / kCount, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / kCount));
}

TEST(Random, NormalHasTheRightMomentsAndTails) {
  Random random(4);
  double sum = 0, squares = 0, fourth = 0;
  int beyond_two = 0;
  constexpr int kCount = 200000;
  for (int i = 0; i < kCount; ++i) {
    const double value = random.Normal();
    ASSERT_TRUE(std::isfinite(value));
    sum += value;
    squares += value * value;
    fourth += value * value * value * value;
    beyond_two += std::abs(value) > 2;
  }
  EXPECT_NEAR(sum / kCount, 0, 5 * std::sqrt(1.0 / kCount));
  EXPECT_NEAR(squares / kCount, 1, 5 * std::sqrt(2.0 / kCount));
  EXPECT_NEAR(fourth / kCount, 3, 5 * std::sqrt(96.0 / kCount));
  EXPECT_NEAR(static_cast<double>(beyond_two) / kCount, 0.0455, 0.0025);
}

TEST(Random, BelowCoversItsRangeEvenly) {
  Random random(5);
  std::vector<int> counts(7);
  constexpr int kCount = 70000;
  for (int i = 0; i < kCount; ++i) {
    const uint64_t value = random.Below(7);
    ASSERT_LT(value, 7u);
    ++counts[value];
  }
  for (int count : counts) EXPECT_NEAR(count, kCount / 7, 5 * std::sqrt(kCount / 7.0));
  EXPECT_EQ(random.Below(1), 0u);
  for (int i = 0; i < 100; ++i) {
    // Nearly half of all draws are beyond the last whole multiple here and must be drawn again.
    EXPECT_LT(random.Below((uint64_t{1} << 63) + 1), (uint64_t{1} << 63) + 1);
  }
  ExpectError(ErrorCode::kInternal, "n > 0", [&] { random.Below(0); });
}

TEST(HashName, IsFnv1a) {
  static_assert(HashName("") == 0xcbf29ce484222325u);
  EXPECT_EQ(HashName("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(HashName("foobar"), 0x85944171f73967e8u);
  EXPECT_NE(HashName("wte.weight"), HashName("ln_f.weight"));
}

}  // namespace
}  // namespace denseformer
