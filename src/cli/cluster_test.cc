#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/testing.h"
#include "cli/run_program.h"

namespace denseformer {
namespace {

using Json = nlohmann::json;

constexpr const char* kCosts = R"({"block_forward": 1e-6, "block_backward": 2e-6,
  "source_forward": 0, "source_backward": 0, "input_forward": 0, "input_backward": 0,
  "head": 0, "update": 1e-9})";

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class ClusterTest : public testing::Test {
 protected:
  ClusterTest() { WriteFileAtomic(costs_, kCosts); }
  // `cluster` with given costs, so that nothing is measured.
  ProgramResult Run(std::vector<std::string> arguments) const {
    std::vector<std::string> all = {"cluster",     "--preset", "test",    "--blocks", "48",
                                    "--precision", "fp32",     "--costs", costs_};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return RunProgram(all);
  }

  TemporaryDirectory scratch_;
  const std::string costs_ = scratch_ / "costs.json";
};

TEST_F(ClusterTest, PlansTheCutsOfThePaper) {
  const ProgramResult result = Run({"--dwa", "4x5", "--hosts", "4", "--pipeline", "4",
                                    "--batch-size", "16", "--micro-batch", "2", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json json = Json::parse(result.out);
  std::vector<int> tensors;
  for (const Json& cut : json["best"]["cuts"]) tensors.push_back(cut["tensors"]);
  EXPECT_EQ(tensors, (std::vector<int>{7, 5, 2}));
  EXPECT_EQ(json["rows"][0]["micro_batches"], 8);
  EXPECT_GT(json["rows"][0]["bubble"], 0.1);
}

TEST_F(ClusterTest, PrintsTheBestLayoutAndItsCommand) {
  const std::string svg = scratch_ / "step.svg";
  const ProgramResult result =
      Run({"--dwa", "1x1", "--hosts", "8", "--batch-size", "16", "--svg", svg});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(Contains(result.out, "the best: ")) << result.out;
  EXPECT_TRUE(Contains(result.out, "mpirun -n 8 denseformer train RUN --pipeline")) << result.out;
  EXPECT_TRUE(Contains(ReadFile(svg), "<svg"));
}

TEST_F(ClusterTest, StudiesCanBeStoredAndDrawn) {
  const ProgramResult study = Run({"--dwa", "1x1", "--pipeline", "4", "--up-to", "16",
                                   "--batch-size", "16", "--name", "dense", "--json"});
  ASSERT_EQ(study.status, 0) << study.err;
  EXPECT_EQ(Json::parse(study.out)["rows"].size(), 3u);  // 4, 8 and 16 ranks
  WriteFileAtomic(scratch_ / "studies.json", "[" + study.out + "]");
  for (const char* chart : {"speed", "sent", "traffic"}) {
    const ProgramResult drawn = RunProgram({"cluster", "--from", scratch_ / "studies.json",
                                            "--chart", chart, "--svg", scratch_ / "chart.svg"});
    ASSERT_EQ(drawn.status, 0) << drawn.err;
    EXPECT_TRUE(Contains(ReadFile(scratch_ / "chart.svg"), "dense"));
  }
}

TEST_F(ClusterTest, SaysWhatIsWrong) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"--hosts", "4", "--pipeline", "3"}, "no layout of 4 ranks"},
      {{"--hosts", "0"}, "--hosts"},
      {{"--length", "100000"}, "--length 100000, expected at most"},
      {{"--from", costs_}, "--from needs --svg"},
      {{"--width", "7"}, "--width 7, expected a multiple of"},
  };
  for (const auto& [arguments, message] : cases) {
    const ProgramResult result = Run(arguments);
    EXPECT_NE(result.status, 0) << message;
    EXPECT_TRUE(Contains(result.err, message)) << result.err;
  }
  const ProgramResult missing =
      RunProgram({"cluster", "--preset", "test", "--costs", scratch_ / "none.json"});
  EXPECT_NE(missing.status, 0);
  EXPECT_TRUE(Contains(missing.err, "none.json")) << missing.err;
}

}  // namespace
}  // namespace denseformer
