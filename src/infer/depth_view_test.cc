#include "infer/depth_view.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "base/error_testing.h"
#include "infer/testing.h"
#include "model/forward.h"

namespace denseformer {
namespace {

LanguageModel MixerModel(const char* mixer, const char* streams, const char* norm) {
  return testing::ByteModel("2x1", 48, WeightFormat::kF32, mixer, streams, norm);
}

using Form = std::tuple<const char*, const char*, const char*>;

class DepthViewTest : public ::testing::TestWithParam<Form> {};

TEST_P(DepthViewTest, ContributionsMakeUpEveryStream) {
  const auto& [mixer, streams, norm] = GetParam();
  const LanguageModel language = MixerModel(mixer, streams, norm);
  const Model& model = language.impl().model;
  const std::vector<int32_t> tokens = {'d', 'e', 'p', 't', 'h'};
  const DepthView view = ViewDepth(language, tokens, 'x', 4);
  const int d = model.config().n_layer;
  size_t modules = 0;
  for (int i = 0; i <= d; ++i) {
    if (model.pattern().has_module(i)) {
      modules += static_cast<size_t>(model.mixer().stream_count(i, d));
    }
  }
  ASSERT_EQ(view.modules.size(), modules);
  for (const DepthModuleView& module : view.modules) {
    EXPECT_GT(module.norm, 0);
    EXPECT_NEAR(module.sum_norm, module.norm, 1e-4 * module.norm)
        << "after block " << module.depth << ", stream " << module.stream;
    for (const DepthContribution& part : module.contributions) {
      EXPECT_LE(part.source, module.depth);
      EXPECT_TRUE(std::isfinite(part.weight) && part.norm > 0);
    }
  }
}

TEST_P(DepthViewTest, LastPredictionIsTheModels) {
  const auto& [mixer, streams, norm] = GetParam();
  const LanguageModel model = MixerModel(mixer, streams, norm);
  const std::vector<int32_t> tokens = {'d', 'e', 'p', 't', 'h'};
  const DepthView view = ViewDepth(model, tokens, 'x', 3);
  const std::vector<float> logits = model.Logits(tokens);
  const float* last = logits.data() + 4 * model.config().vocab_size;
  double sum = 0;
  const int x = 'x';
  int64_t rank = 1;
  // The sum is over all rows of the embedding, the rank among the tokens.
  for (int id = 0; id < model.config().vocab_size; ++id) {
    sum += std::exp(static_cast<double>(last[id]));
  }
  for (int id = 0; id < 257; ++id) rank += last[id] > last[x] ? 1 : 0;
  ASSERT_EQ(view.predictions.size(), static_cast<size_t>(model.config().n_layer) + 1);
  const DepthPrediction& own = view.predictions.back();
  EXPECT_NEAR(own.next.logprob, last[x] - std::log(sum), 1e-4);
  EXPECT_EQ(own.next_rank, rank);
  ASSERT_EQ(own.likeliest.size(), 3u);
  for (int id = 0; id < 257; ++id) EXPECT_LE(last[id], last[own.likeliest[0].id]);
}

INSTANTIATE_TEST_SUITE_P(
    Mixers, DepthViewTest,
    ::testing::Values(Form{"static", "r", "none"}, Form{"static", "rqkv", "none"},
                      Form{"dynamic", "r", "none"}, Form{"dynamic", "rv", "none"},
                      Form{"dynamic", "rqkv", "prepost"}, Form{"attention", "rv", "none"},
                      Form{"attnres", "r", "none"}));

TEST(DepthViewErrorsTest, PlainTransformerHasPredictionsOnly) {
  const LanguageModel model = testing::ByteModel("none");
  const std::vector<int32_t> tokens = {'a'};
  const DepthView view = ViewDepth(model, tokens, -1, 2);
  EXPECT_TRUE(view.modules.empty());
  EXPECT_EQ(view.predictions[0].next_rank, 0);
  EXPECT_EQ(view.predictions[0].likeliest.size(), 2u);
  // Without a module Y is X.
  EXPECT_EQ(view.predictions[1].x_norm, view.predictions[1].y_norm);
}

TEST(DepthViewErrorsTest, WrongTokens) {
  const LanguageModel model = testing::ByteModel();
  const std::vector<int32_t> none, outside = {400}, one = {1};
  EXPECT_THROW(ViewDepth(model, none, -1, 1), Error);
  EXPECT_THROW(ViewDepth(model, outside, -1, 1), Error);
  ExpectError(ErrorCode::kInvalid, "token 257", [&] { ViewDepth(model, one, 257, 1); });
}

}  // namespace
}  // namespace denseformer
