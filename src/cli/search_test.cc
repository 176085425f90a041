// denseformer search as users call it: a trained run gives a mask that trains.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/testing.h"
#include "cli/run_program.h"
#include "train/testing.h"

namespace denseformer {
namespace {

class SearchCommandTest : public testing::Test {
 protected:
  ProgramResult Call(std::vector<std::string> call) const {
    call.insert(call.end(), {"--quiet", "--threads", "1"});
    return RunProgram(call);
  }
  std::string TrainRun(const std::string& name, const std::string& dwa) const {
    const std::string run = scratch_ / name;
    const ProgramResult result = Call({"train", run, "--preset", "test", "--data", data_, "--dwa",
                                       dwa, "--steps", "6", "--eval-batches", "1"});
    EXPECT_EQ(result.status, 0) << result.err;
    return run;
  }

  const TemporaryDirectory scratch_;
  const std::string data_ = MakeTestData(scratch_ / "data");
};

TEST_F(SearchCommandTest, AMaskThatTrains) {
  const std::string run = TrainRun("run", "1x1"), before = ReadFile(run + "/model.safetensors");
  for (const char* method : {"penalty", "greedy"}) {
    const std::string mask = scratch_ / (std::string("masks/") + method);
    const ProgramResult json = Call({"search", run, "--weights", "6", "--method", method, "--steps",
                                     "10", "--rounds", "3", "--output", mask, "--json"});
    ASSERT_EQ(json.status, 0) << json.err;
    const auto result = nlohmann::json::parse(json.out);
    EXPECT_EQ(result["method"], method);
    EXPECT_EQ(result["weights"], 6);
    EXPECT_EQ(result["course"].back()["step"], 10);
    EXPECT_GT(result["validation_loss"].get<double>(), 0);
    const std::string trained = TrainRun(method, mask);
    EXPECT_EQ(ReadConfig(trained).dwa, result["pattern"]);
  }
  EXPECT_EQ(ReadFile(run + "/model.safetensors"), before);
}

TEST_F(SearchCommandTest, PrintsTheCourseAndThePattern) {
  const ProgramResult result = Call({"search", TrainRun("run", "1x1"), "--weights", "5", "--steps",
                                     "5", "--output", scratch_ / "mask"});
  ASSERT_EQ(result.status, 0) << result.err;
  for (const char* part : {"training loss", "weights          5 of 14 (1x1)", "validation loss"}) {
    EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.out;
  }
}

TEST_F(SearchCommandTest, Errors) {
  const std::string run = TrainRun("run", "none");
  const ProgramResult plain =
      Call({"search", run, "--weights", "5", "--output", scratch_ / "mask"});
  EXPECT_EQ(plain.status, 2);
  EXPECT_NE(plain.err.find("search: needs a run with static weights"), std::string::npos)
      << plain.err;
  EXPECT_FALSE(FileExists(scratch_ / "mask"));
  const ProgramResult missing =
      Call({"search", scratch_ / "nowhere", "--weights", "5", "--output", scratch_ / "mask"});
  EXPECT_NE(missing.status, 0);
  EXPECT_NE(missing.err.find("nowhere"), std::string::npos) << missing.err;
}

// The signal comes while the model is evaluated, as soon as the program has a handler for it.
TEST_F(SearchCommandTest, SaysThatItWasStopped) {
  const std::string run = scratch_ / "run", pid = scratch_ / "pid", mask = scratch_ / "mask";
  ASSERT_EQ(Call({"train", run, "--preset", "test", "--data", data_, "--dwa", "1x1", "--steps", "6",
                  "--eval-every", "0", "--eval-batches", "1000000"})
                .status,
            0);
  const std::string handles_term = "SigCgt:.*[4567cdef][0-9a-f][0-9a-f][0-9a-f]$";
  const ProgramResult result = RunProgram(
      {"search", run, "--weights", "5", "--output", mask, "--quiet", "--threads", "1"}, "",
      "(n=0; until grep -qs '" + handles_term + "' /proc/$(cat " + pid +
          " 2>/dev/null || echo 0)/status || [ $((n+=1)) -gt 300 ]; do sleep 0.1; done; kill -TERM "
          "$(cat " +
          pid + ")) & sh -c 'echo $$ >" + pid + "; exec \"$0\" \"$@\"'");
  EXPECT_EQ(result.status, 130);
  EXPECT_EQ(result.err, "error: search: stopped by a signal\n");
  EXPECT_FALSE(FileExists(mask));
}

}  // namespace
}  // namespace denseformer
