#include "analysis/mask_search.h"

#include <gtest/gtest.h>

#include "analysis/testing.h"
#include "base/error_testing.h"
#include "data/token_file.h"

namespace denseformer {
namespace {

class MaskSearchTest : public TrainedRunTest {
 protected:
  MaskSearchTest()
      : file_(data_ + "/train.bin"), batches_(file_, {64, 4, 1, BatchOrder::kShuffled}) {
    options_ = PresetOptions("test");
    options_.precision = "fp32";
    options_.model.seq_len = 64;
    options_.model.n_layer = 6;
    options_.model.dwa = "1x1";
    options_.batch_size = 4;
    options_.steps = 40;
    options_.lr = 0.01;
  }
  Model NewModel() const {
    Model model(options_.model, DType::kF32, ModelUse::kTraining);
    model.Initialize(1);
    return model;
  }
  SearchResult Search(Model& model, const SearchOptions& search) const {
    return SearchMask(model, batches_, 0, options_, search);
  }

  TrainOptions options_;
  const TokenFile file_;
  const TrainBatches batches_;
};

TEST_F(MaskSearchTest, FindsAsManyWeightsAsAskedFor) {
  for (const std::string& method : SearchMethods()) {
    for (const int64_t weights : {2, 9, 20}) {
      SCOPED_TRACE(method + " " + std::to_string(weights));
      Model model = NewModel();
      const SearchResult result = Search(model, {method, weights, 4});
      EXPECT_LE(result.pattern.weight_count(), weights);
      EXPECT_GE(result.pattern.weight_count(), weights - 1);
      ASSERT_EQ(result.course.size(), 40u);
      EXPECT_EQ(result.course.back().weights, result.pattern.weight_count());
      EXPECT_LT(result.course.back().loss, result.course.front().loss);
      // What the mask leaves out takes no part in the model that was trained.
      for (int i = 1; i <= 6; ++i) {
        const std::vector<int>& kept = result.pattern.sources(i);
        for (int j = 0; j < i; ++j) {
          const bool keeps = std::find(kept.begin(), kept.end(), j) != kept.end();
          if (!keeps) {
            EXPECT_EQ(model.tensors().alphas[i].f32()[j], 0) << i << " " << j;
          }
        }
        if (kept.empty()) {
          EXPECT_EQ(model.tensors().alphas[i].f32()[i], 1) << i;
        }
      }
    }
  }
}

TEST_F(MaskSearchTest, TheSameSearchGivesTheSameMask) {
  for (const std::string& method : SearchMethods()) {
    Model a = NewModel(), b = NewModel();
    EXPECT_EQ(Search(a, {method, 12, 4}).pattern, Search(b, {method, 12, 4}).pattern) << method;
  }
}

// The number of weights falls on the way, not at once.
TEST_F(MaskSearchTest, WeightsFallStepByStep) {
  for (const std::string& method : SearchMethods()) {
    Model model = NewModel();
    // Away from the identity, at which every weight of an older output is 0 already.
    for (int i = 1; i <= 6; ++i) {
      for (int j = 0; j < i; ++j) {
        model.tensors().alphas[i].f32()[j] = 0.02f * static_cast<float>(1 + (i + 2 * j) % 5);
      }
    }
    const SearchResult result = Search(model, {method, 8, 4});
    std::vector<int64_t> different;
    for (const SearchPoint& point : result.course) {
      if (different.empty() || point.weights != different.back())
        different.push_back(point.weights);
    }
    EXPECT_GE(different.size(), 4u) << method;
    EXPECT_GT(different.front(), 20) << method;
  }
}

TEST_F(MaskSearchTest, Errors) {
  Model model = NewModel();
  ExpectError(ErrorCode::kUsage,
              "search: got 27 weights to keep, expected 2 to 26 (the run has 27)", [&] {
                Search(model, {"penalty", 27, 4});
              });
  ExpectError(ErrorCode::kUsage, "search: got method 'best', expected penalty or greedy", [&] {
    Search(model, {"best", 9, 4});
  });
  ExpectError(ErrorCode::kUsage, "search: got 40 steps, expected at least 51 with method greedy",
              [&] {
                Search(model, {"greedy", 9, 50});
              });
  options_.model.mixer = "dynamic";
  Model dynamic = NewModel();
  ExpectError(ErrorCode::kUsage,
              "search: needs a run with static weights of the residual stream (such as --dwa 1x1), "
              "got dwa 1x1, mixer dynamic, streams r",
              [&] {
                Search(dynamic, {"penalty", 9, 4});
              });
}

}  // namespace
}  // namespace denseformer
