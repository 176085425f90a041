#include "infer/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/random.h"
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

// The same choice by its definition: all tokens in order, filter by filter, one sum.
int32_t PlainChoice(const SamplingOptions& o, const std::vector<float>& logits,
                    const std::vector<int32_t>& context, uint64_t position) {
  struct Token {
    double logit;
    int32_t id;
    double weight = 0;
  };
  std::vector<Token> tokens;
  const float penalty = static_cast<float>(o.repetition_penalty);
  for (size_t id = 0; id < logits.size(); ++id) {
    float logit = logits[id];
    if (std::find(context.begin(), context.end(), static_cast<int32_t>(id)) != context.end()) {
      logit = logit > 0 ? logit / penalty : logit * penalty;
    }
    tokens.push_back({logit, static_cast<int32_t>(id)});
  }
  std::vector<Token> order = tokens;
  std::stable_sort(order.begin(), order.end(),
                   [](const Token& a, const Token& b) { return a.logit > b.logit; });
  const double largest = order[0].logit;
  if (o.temperature == 0) return order[0].id;
  if (o.top_k > 0 || o.top_p < 1) tokens = order;
  if (o.top_k > 0) tokens.resize(std::min<size_t>(tokens.size(), o.top_k));
  double total = 0;
  for (Token& t : tokens) total += t.weight = std::exp((t.logit - largest) / o.temperature);
  if (o.top_p < 1) {
    size_t kept = 0;
    for (double sum = 0; kept < tokens.size() && sum < o.top_p * total;) {
      sum += tokens[kept++].weight;
    }
    tokens.resize(std::max<size_t>(kept, 1));
  }
  std::erase_if(tokens, [&](const Token& t) { return t.weight < o.min_p; });
  double left = 0;
  for (const Token& t : tokens) left += t.weight;
  left *= Random(o.seed, /*stream=*/7, position).UniformDouble();
  for (const Token& t : tokens) {
    if ((left -= t.weight) < 0) return t.id;
  }
  return order[0].id;
}

TEST(Sampler, ChoosesAsByDefinition) {
  Random random(1);
  for (const size_t vocabulary : {1, 2, 5, 31, 33, 257, 3001}) {
    for (const double deviation : {0.0, 0.02, 3.0}) {  // all alike; nearly; as trained models
      std::vector<float> logits(vocabulary);
      for (float& logit : logits) logit = static_cast<float>(deviation) * random.Normal();
      for (size_t id = 3; id < vocabulary; id += 7) logits[id] = logits[id - 2];
      const std::vector<int32_t> context = {0, 4, 4, 9000};
      for (const int top_k : {0, 1, 40, 1000}) {
        for (const double top_p : {1.0, 0.9, 0.3}) {
          for (const double min_p : {0.0, 0.05}) {
            SamplingOptions options;
            options.top_k = top_k;
            options.top_p = top_p;
            options.min_p = min_p;
            options.temperature = top_k == 1000 ? 0.7 : 1;
            options.repetition_penalty = min_p > 0 ? 1.3 : 1;
            const Sampler sampler(options, 7);
            for (uint64_t n = 0; n < 20; ++n) {
              ASSERT_EQ(sampler.Choose(logits, context, n),
                        PlainChoice(options, logits, context, n))
                  << vocabulary << " " << deviation << " " << top_k << " " << top_p << " " << min_p;
            }
          }
        }
      }
    }
  }
}

TEST(Sampler, PenaltiesBeyondTheRangeOfFloats) {
  SamplingOptions options;
  options.repetition_penalty = 100;
  const std::vector<float> logits = {-3e38f, 1.0f};
  EXPECT_EQ(Sampler(options, 0).Choose(logits, std::vector<int32_t>{0}, 0), 1);
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
