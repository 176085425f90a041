#include "infer/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "denseformer/error.h"

namespace denseformer {
namespace {

const std::vector<float> kLogits = {1.0f, 3.0f, 2.0f, -1.0f, 3.0f};

std::map<int32_t, double> Shares(const SamplingOptions& options, const std::vector<float>& logits,
                                 const std::vector<int32_t>& context = {}) {
  constexpr int kDraws = 20000;
  std::map<int32_t, double> shares;
  Sampler sampler(options, 0);
  for (int i = 0; i < kDraws; ++i) shares[sampler.Choose(logits, context, i)] += 1.0 / kDraws;
  return shares;
}

TEST(Sampler, ZeroTemperatureTakesTheFirstOfTheLikeliest) {
  SamplingOptions options;
  options.temperature = 0;
  EXPECT_EQ(Sampler(options, 0).Choose(kLogits, {}, 0), 1);
}

TEST(Sampler, FollowsTheSoftmax) {
  const auto shares = Shares({}, kLogits);
  double total = 0;
  for (float logit : kLogits) total += std::exp(logit);
  for (size_t i = 0; i < kLogits.size(); ++i) {
    EXPECT_NEAR(shares.at(static_cast<int32_t>(i)), std::exp(kLogits[i]) / total, 0.015) << i;
  }
}

TEST(Sampler, TemperatureSharpens) {
  SamplingOptions options;
  options.temperature = 0.5;
  const auto shares = Shares(options, {0.0f, 1.0f});
  EXPECT_NEAR(shares.at(1), std::exp(2.0) / (1 + std::exp(2.0)), 0.015);
}

TEST(Sampler, TopKKeepsTheLikeliest) {
  SamplingOptions options;
  options.top_k = 2;
  const auto shares = Shares(options, kLogits);
  ASSERT_EQ(shares.size(), 2u);
  EXPECT_NEAR(shares.at(1), 0.5, 0.015);
  EXPECT_NEAR(shares.at(4), 0.5, 0.015);
}

TEST(Sampler, TopPKeepsTheSmallestSetWithThatProbability) {
  SamplingOptions options;
  options.top_p = 0.6;  // softmax of {ln 5, ln 3, ln 2} = 0.5, 0.3, 0.2
  const auto shares = Shares(options, {std::log(2.0f), std::log(5.0f), std::log(3.0f)});
  ASSERT_EQ(shares.size(), 2u);
  EXPECT_NEAR(shares.at(1), 5.0 / 8, 0.015);
  EXPECT_NEAR(shares.at(2), 3.0 / 8, 0.015);
}

TEST(Sampler, MinPKeepsWhatIsNearTheLikeliest) {
  SamplingOptions options;
  options.min_p = 0.5;
  const auto shares = Shares(options, {std::log(2.0f), std::log(5.0f), std::log(3.0f)});
  ASSERT_EQ(shares.size(), 2u);
  EXPECT_FALSE(shares.contains(0));
}

TEST(Sampler, RepetitionPenaltyCountsATokenOnce) {
  SamplingOptions options;
  options.temperature = 0;
  options.repetition_penalty = 2;
  // 3 / 2 = 1.5 < 2; were it punished twice or not at all, another would win.
  EXPECT_EQ(Sampler(options, 0)
                .Choose(std::vector<float>{1.4f, 3.0f, 1.0f}, std::vector<int32_t>{1, 1, 1}, 0),
            1);
  EXPECT_EQ(
      Sampler(options, 0).Choose(std::vector<float>{-1.0f, -1.5f}, std::vector<int32_t>{0}, 0), 1);
}

TEST(Sampler, SameSeedSameChoiceWhateverCameBefore) {
  Sampler a({}, 3), b({}, 3);
  for (int i = 0; i < 50; ++i) b.Choose(kLogits, {}, i);
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(a.Choose(kLogits, {}, i), Sampler({}, 3).Choose(kLogits, {}, i));
}

TEST(Sampler, NonFiniteLogitsAreAnError) {
  for (float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    EXPECT_THROW(Sampler({}, 0).Choose(std::vector<float>{0.0f, bad}, {}, 0), Error);
  }
}

TEST(TokenLogprobs, RowsWithoutATokenCountButAreNotListed) {
  const GeneratedToken token = TokenLogprobs(kLogits, 3, 2, 5);
  EXPECT_EQ(token.chosen.logprob, TokenLogprobs(kLogits, kLogits.size(), 2, 0).chosen.logprob);
  ASSERT_EQ(token.likeliest.size(), 3u);
  for (const TokenProbability& likely : token.likeliest) EXPECT_LT(likely.id, 3);
}

TEST(TokenLogprobs, OwnValueEqualsItsEntry) {
  const GeneratedToken token = TokenLogprobs(kLogits, kLogits.size(), 4, 3);
  ASSERT_EQ(token.likeliest.size(), 3u);
  EXPECT_EQ(token.likeliest[0].id, 1);
  EXPECT_EQ(token.likeliest[1].id, 4);
  EXPECT_EQ(token.likeliest[1].logprob, token.chosen.logprob);
  double total = 0;
  for (float logit : kLogits) total += std::exp(logit);
  EXPECT_NEAR(token.chosen.logprob, 3.0 - std::log(total), 1e-6);
}

}  // namespace
}  // namespace denseformer
