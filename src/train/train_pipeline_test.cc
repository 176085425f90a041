// Whole runs on pipelines of ranks that are threads: the curve of one process, whatever the shape.
#include <gtest/gtest.h>

#include "base/error_testing.h"
#include "train/ranks_testing.h"
#include "train/train_state.h"

namespace denseformer {
namespace {

class TrainPipelineTest : public TrainRanksTest {
 protected:
  TrainRequest Pipelined(const std::string& name, const std::string& dwa,
                         const PipelineRequest& pipeline) const {
    TrainRequest request = Request(name, 6);
    request.options.model.n_layer = 4;
    request.options.model.dwa = dwa;
    request.options.accumulate = 4;
    request.options.clip = 1;
    request.pipeline = pipeline;
    return request;
  }
};

TEST_F(TrainPipelineTest, EqualsOneProcess) {
  for (const char* dwa : {"none", "1x1", "2x2", "last:2"}) {
    const std::string name = std::string(dwa).substr(0, 2);
    TrainRequest one = Pipelined("one-" + name, dwa, {1, {}});
    one.options.model.gains = true;
    TrainRequest two = one, both = one;
    Train(one);
    two.run = scratch_ / ("two-" + name);
    two.pipeline = {3, {1, 2}};
    Run(two, 3);
    ExpectClose(two, one);
    both.run = scratch_ / ("both-" + name);  // two copies of two stages
    both.pipeline = {2, {3}};
    both.options.recompute = true;
    Run(both, 4);
    ExpectClose(both, one);
  }
}

TEST_F(TrainPipelineTest, AnyShapeContinuesTheSameCurve) {
  TrainRequest whole = Pipelined("whole", "2x1", {1, {}});
  whole.options.schedule = "constant";
  whole.options.steps = 8;
  Train(whole);
  struct Part {
    int ranks, stages;
    int64_t stop;
  };
  for (const Part& part : {Part{2, 2, 2}, {1, 1, 4}, {4, 2, 6}, {2, 1, 8}}) {
    TrainRequest request = whole;
    request.run = scratch_ / "parts";
    request.resume = part.stop > 2;
    request.options.steps = part.stop;
    request.forced = {"steps"};
    request.pipeline.stages = part.stages;  // cuts by measured costs
    Run(request, part.ranks);
  }
  TrainRequest parts = whole;
  parts.run = scratch_ / "parts";
  const std::vector<double> expected = Values(whole, "loss"), got = Values(parts, "loss");
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-6 * expected[i]) << i;
}

TEST_F(TrainPipelineTest, RepeatsBitForBit) {
  for (const char* precision : {"fp32", "bf16"}) {
    const auto request = [&](const std::string& name, const PipelineRequest& pipeline) {
      TrainRequest result = Pipelined(name + precision, "1x1", pipeline);
      result.options.precision = precision;
      return result;
    };
    const TrainRequest a = request("a", {2, {2}}), b = request("b", {2, {2}});
    Run(a, 4);
    Run(b, 4);
    EXPECT_EQ(Differences(Content(a.run), Content(b.run)), "");
    // And near one process, also where the copies share their masters.
    const TrainRequest one = request("one", {1, {}});
    Train(one);
    const std::vector<double> expected = Values(one, "loss"), got = Values(a, "loss");
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-3 * expected[i]);
  }
}

TEST_F(TrainPipelineTest, ResumesWithTheCutsThatItHad) {
  const TrainRequest whole = Pipelined("whole", "1x1", {3, {1, 3}});
  Run(whole, 3);
  TrainRequest parts = Pipelined("parts", "1x1", {3, {1, 3}});
  Run(parts, 3);
  CutOffAfter(parts, 4);
  parts.resume = true;
  parts.pipeline.cuts.clear();
  Run(parts, 3);
  EXPECT_EQ(StoredCuts(parts.run, 3), "1,3");
  EXPECT_EQ(Differences(Content(whole.run), Content(parts.run)), "");
  // Of other stages, or of one process, there are none.
  EXPECT_EQ(StoredCuts(parts.run, 2), "");
  const TrainRequest one = Pipelined("one", "1x1", {1, {}});
  Train(one);
  EXPECT_EQ(StoredCuts(one.run, 2), "");
}

// Mixers whose averages are not plain sums of sources are refused before anything is written.
TEST_F(TrainPipelineTest, RefusesMixersThatCannotBeSplit) {
  const std::pair<const char*, const char*> mixers[] = {
      {"dynamic", "r"}, {"attention", "r"}, {"static", "rqkv"}};
  for (const auto& [mixer, streams] : mixers) {
    TrainRequest request = Pipelined("run", "1x1", {2, {2}});
    request.options.model.mixer = mixer;
    request.options.model.streams = streams;
    ExpectError(ErrorCode::kUnsupported, "pipeline: partial sums cross the cuts",
                [&] { Run(request, 2); });
    EXPECT_FALSE(FileExists(request.run));
  }
}

TEST_F(TrainPipelineTest, SaysWhatIsWrong) {
  TrainRequest request = Pipelined("run", "1x1", {2, {2}});
  ExpectError(ErrorCode::kUsage, "--pipeline 2 on 3 ranks, expected a multiple of 2",
              [&] { Run(request, 3); });
  request.options.lr = 1e30;
  request.options.warmup = 0;
  request.options.max_bad_steps = 2;
  request.options.steps = 20;
  const std::string error = ErrorOf([&] { Run(request, 2); });
  EXPECT_NE(error.find("not finite in 2 steps in a row"), std::string::npos) << error;
  EXPECT_NE(error.find("first bad tensor: gradient of"), std::string::npos) << error;
}

}  // namespace
}  // namespace denseformer
