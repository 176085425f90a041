// Helpers of the tests of training: small data, a fixture, and comparing runs.
#ifndef DENSEFORMER_TRAIN_TESTING_H_
#define DENSEFORMER_TRAIN_TESTING_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/random.h"
#include "base/testing.h"
#include "io/run_directory.h"
#include "model/testing.h"
#include "train/json_lines.h"
#include "train/options.h"

namespace denseformer {

// A stream that can be learnt in part: the next token follows from the last one, up to some noise.
inline void WriteTokens(const std::string& path, int64_t count, int vocab_size, uint64_t seed) {
  Random random(seed);
  std::string bytes;
  uint32_t token = 0;
  for (int64_t i = 0; i < count; ++i) {
    token = (token * 7 + 1 + static_cast<uint32_t>(random.Below(3))) %
            static_cast<uint32_t>(vocab_size);
    bytes += static_cast<char>(token & 255);
    bytes += static_cast<char>(token >> 8);
  }
  WriteFileAtomic(path, bytes);
}

// train.bin and val.bin in a new directory.
inline std::string MakeTestData(const std::string& directory) {
  std::filesystem::create_directories(directory);
  WriteTokens(directory + "/train.bin", 20000, 500, 1);
  WriteTokens(directory + "/val.bin", 1000, 500, 2);
  return directory;
}

// Data to train on in a directory of the test's own; one thread, and only errors are logged.
class TrainingTest : public testing::Test {
 protected:
  TrainingTest() : data_(MakeTestData(scratch_ / "data")) {
    SetProgressEnabled(false);
    SetLogLevel(LogLevel::kError);
  }
  ~TrainingTest() override { SetLogLevel(LogLevel::kInfo); }

  const ThreadsGuard threads_{1};
  const TemporaryDirectory scratch_;
  const std::string data_;
};

// A run of `steps` steps that saves and validates on its way.
inline TrainOptions ShortRun(const std::string& data, int64_t steps) {
  TrainOptions options = PresetOptions("test");
  options.data = data;
  options.precision = "fp32";
  options.model.dwa = "2x1";
  options.steps = steps;
  options.save_every = 2;
  options.eval_every = 3;
  options.eval_batches = 1;
  return options;
}

// What of a run does not depend on the clock, by name: metrics without times, the snapshots of the
// DWA weights, weights and moments of the newest checkpoint. (Which older ones are still there may
// differ after a kill.)
inline std::map<std::string, std::string> Content(const std::string& run) {
  std::map<std::string, std::string> content;
  std::string metrics;
  for (nlohmann::ordered_json& record : ReadJsonLines(run + "/metrics.jsonl")) {
    for (const char* key : {"seconds", "tokens_per_second", "gemm_share"}) record.erase(key);
    metrics += record.dump() + "\n";
  }
  content["metrics"] = metrics;
  content["alphas"] = ReadFile(run + "/alphas.jsonl");
  content["model"] = ReadFile(run + "/model.safetensors");
  const CheckpointInfo newest = ListCheckpoints(run).back();
  content["step"] = std::to_string(newest.step);
  content["weights"] = ReadFile(newest.path + "/model.safetensors");
  content["moments"] = ReadFile(newest.path + "/optimizer.safetensors");
  return content;
}

// The names of what differs between two contents, for short messages.
inline std::string Differences(const std::map<std::string, std::string>& a,
                               const std::map<std::string, std::string>& b) {
  std::string names;
  for (const auto& [name, value] : a) {
    if (b.at(name) != value) names += name + " ";
  }
  return names;
}

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_TESTING_H_
