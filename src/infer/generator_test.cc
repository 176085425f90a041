#include "denseformer/generator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <thread>

#include "denseformer/error.h"
#include "infer/testing.h"

namespace denseformer {
namespace {

using testing::ByteModel;

GenerateOptions Options(int max_tokens) {
  GenerateOptions options;
  options.max_tokens = max_tokens;
  options.stop_at_end_of_text = false;
  return options;
}

class GeneratorTest : public ::testing::TestWithParam<WeightFormat> {};

TEST_P(GeneratorTest, GreedyTextIsTheArgmaxOfTheFullPass) {
  const LanguageModel model = ByteModel("1x1", 48, GetParam());
  GenerateOptions options = Options(12);
  options.sampling.temperature = 0;
  std::vector<int32_t> tokens = model.tokenizer().Encode("hello");
  Generator generator(model);
  const Generation generation = generator.Generate("hello", options);
  for (int32_t token : generation.tokens) {
    const std::vector<float> logits = model.Logits(tokens);
    const float* last = logits.data() + (tokens.size() - 1) * model.config().vocab_size;
    const float most = *std::max_element(last, last + 257);
    // Attention of the full pass rounds differently in bf16: a token as good as the best within
    // that is right too.
    EXPECT_GE(last[token], most - (GetParam() == WeightFormat::kF32 ? 0 : 0.02f * std::abs(most)));
    tokens.push_back(token);
  }
  EXPECT_EQ(generation.tokens.size(), 12u);
  EXPECT_EQ(generation.finish, FinishReason::kLength);
  EXPECT_EQ(generation.prompt_tokens, 5);
}

TEST_P(GeneratorTest, SameSeedSameTextWhateverTheNumberOfSamples) {
  Generator generator(ByteModel("1x1", 48, GetParam()));
  GenerateOptions options = Options(20);
  options.sampling.seed = 5;
  const Generation alone = generator.Generate("ab", options);
  options.samples = 70;  // more than run at the same time
  const std::vector<Generation> together =
      generator.GenerateSamples(std::string_view("ab"), options);
  EXPECT_EQ(alone.tokens, together[0].tokens);
  EXPECT_NE(together[0].tokens, together[1].tokens);
  for (const Generation& generation : together) {
    EXPECT_EQ(generation.tokens.size(), 20u);
    for (int32_t token : generation.tokens)
      EXPECT_LT(token, 257);  // rows beyond the tokens are never chosen
  }
  options.sampling.seed = 6;
  options.samples = 1;
  EXPECT_NE(generator.Generate("ab", options).tokens, alone.tokens);
}

INSTANTIATE_TEST_SUITE_P(All, GeneratorTest,
                         ::testing::Values(WeightFormat::kF32, WeightFormat::kBF16),
                         [](const auto& info) { return WeightFormatName(info.param); });

// A model is shared by generators of several threads.
TEST(Generator, TwoGeneratorsOnOneModelFromTwoThreads) {
  const LanguageModel model = ByteModel();
  GenerateOptions options = Options(10);
  const std::vector<int32_t> expected = Generator(model).Generate("abc", options).tokens;
  std::vector<int32_t> tokens[2];
  std::vector<std::thread> threads;
  for (auto& result : tokens) {
    threads.emplace_back([&model, &options, &result] {
      Generator generator(model);
      for (int n = 0; n < 3; ++n) result = generator.Generate("abc", options).tokens;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(tokens[0], expected);
  EXPECT_EQ(tokens[1], expected);
}

TEST(Generator, AnErrorLeavesNothingBehind) {
  Generator generator(ByteModel());
  GenerateOptions options = Options(10);
  options.samples = 3;
  const auto expected = generator.GenerateSamples(std::string_view("abc"), options);
  EXPECT_THROW(generator.GenerateSamples(
                   std::string_view("abc"), options,
                   [](int, std::string_view) -> bool { throw std::runtime_error("closed"); }),
               std::runtime_error);
  const auto again = generator.GenerateSamples(std::string_view("abc"), options);
  for (int s = 0; s < 3; ++s) EXPECT_EQ(again[s].tokens, expected[s].tokens);
}

TEST(Generator, StopsAtTheContextOrSlides) {
  Generator generator(ByteModel("4x1", 16));
  GenerateOptions options = Options(40);
  const Generation stopped = generator.Generate("abcd", options);
  EXPECT_EQ(stopped.finish, FinishReason::kContext);
  EXPECT_EQ(stopped.tokens.size(),
            13u);  // 4 + 12 fill the window; the last is chosen but not encoded
  options.context = ContextPolicy::kSlide;
  const Generation slid = generator.Generate("abcd", options);
  EXPECT_EQ(slid.finish, FinishReason::kLength);
  EXPECT_EQ(slid.tokens.size(), 40u);
  EXPECT_TRUE(std::equal(stopped.tokens.begin(), stopped.tokens.end(), slid.tokens.begin()));
  EXPECT_EQ(generator.Generate(std::string(100, 'x'), options).tokens.size(), 40u);
}

TEST(Generator, StreamsWhatItReturns) {
  Generator generator(ByteModel());
  GenerateOptions options = Options(30);
  options.samples = 2;
  std::string streamed[2];
  const auto results = generator.GenerateSamples(std::string_view("x"), options,
                                                 [&](int sample, std::string_view piece) {
                                                   streamed[sample] += piece;
                                                   return true;
                                                 });
  for (int s = 0; s < 2; ++s) EXPECT_EQ(streamed[s], results[s].text);
}

TEST(Generator, ACallbackCanEndASample) {
  Generator generator(ByteModel());
  const auto results = generator.GenerateSamples(std::string_view("x"), Options(30),
                                                 [&](int, std::string_view) { return false; });
  EXPECT_EQ(results[0].finish, FinishReason::kCancelled);
  EXPECT_LT(results[0].tokens.size(), 30u);
}

TEST(Generator, LogprobsComeFromTheModelItself) {
  Generator generator(ByteModel());
  GenerateOptions options = Options(5);
  options.logprobs = 3;
  options.sampling.temperature = 0;
  const Generation generation = generator.Generate("x", options);
  ASSERT_EQ(generation.logprobs.size(), 5u);
  for (size_t t = 0; t < 5; ++t) {
    EXPECT_EQ(generation.logprobs[t].chosen.id, generation.tokens[t]);
    ASSERT_EQ(generation.logprobs[t].likeliest.size(), 3u);
    EXPECT_EQ(generation.logprobs[t].likeliest[0].logprob, generation.logprobs[t].chosen.logprob);
  }
}

TEST(Generator, AnEmptyPromptBeginsAtTheEndOfText) {
  Generator generator(ByteModel());
  EXPECT_EQ(generator.Generate("", Options(3)).tokens.size(), 3u);
}

TEST(Generator, WrongOptionsAreNamed) {
  Generator generator(ByteModel("none", 16));
  auto message = [&](auto change) {
    GenerateOptions options = Options(4);
    change(options);
    try {
      generator.GenerateSamples(std::string_view("abcdefghijklmnopqrst"), options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message([](GenerateOptions& o) { o.sampling.temperature = -1; }),
            "temperature: got -1, expected 0 to 100");
  EXPECT_EQ(message([](GenerateOptions& o) { o.sampling.top_p = 0; }),
            "top_p: got 0, expected more than 0 and at most 1");
  EXPECT_NE(message([](GenerateOptions& o) { o.sampling.min_p = 2; }).find("min_p: got 2"),
            std::string::npos);
  EXPECT_NE(message([](GenerateOptions& o) { o.samples = 0; }).find("samples: got 0"),
            std::string::npos);
  EXPECT_NE(message([](GenerateOptions& o) { o.stop = {""}; }).find("stop: got an empty string"),
            std::string::npos);
  EXPECT_NE(
      message([](GenerateOptions&) {}).find("prompt: 20 tokens, but the model's context has 16"),
      std::string::npos);
}

}  // namespace
}  // namespace denseformer
