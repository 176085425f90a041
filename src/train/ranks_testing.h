// Runs on ranks that are threads, for tests.
#ifndef DENSEFORMER_TRAIN_RANKS_TESTING_H_
#define DENSEFORMER_TRAIN_RANKS_TESTING_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dist/testing.h"
#include "train/testing.h"
#include "train/trainer.h"

namespace denseformer {

class TrainRanksTest : public TrainingTest {
 protected:
  TrainRequest Request(const std::string& name, int64_t steps) const {
    TrainRequest request;
    request.run = scratch_ / name;
    request.options = ShortRun(data_, steps);
    request.options.dropout = 0.1;
    request.options.batch_size = 8;
    request.options.accumulate = 2;
    request.options.eval_batches = 2;
    return request;
  }

  static void Run(const TrainRequest& request, int ranks) {
    RunRanks(ranks, [&](Communicator& world) {
      const auto summary = Train(request, world);
      EXPECT_EQ(summary.is_null(), !world.first());
      if (world.first()) {
        EXPECT_EQ(summary["ranks"], ranks);
      }
    });
  }

  // A finished run as if it had been killed after the checkpoint of `step`.
  static void CutOffAfter(const TrainRequest& request, int64_t step) {
    for (const CheckpointInfo& checkpoint : ListCheckpoints(request.run)) {
      if (checkpoint.step > step) RemoveTree(checkpoint.path);
    }
    RemoveFile(request.run + "/summary.json");
    RemoveFile(request.run + "/model.safetensors");  // of its last checkpoint
  }

  static std::vector<double> Values(const TrainRequest& request, const char* key) {
    std::vector<double> values;
    for (auto& record : ReadJsonLines(request.run + "/metrics.jsonl")) {
      if (record.contains(key)) values.push_back(record[key].get<double>());
    }
    return values;
  }

  static void ExpectClose(const TrainRequest& a, const TrainRequest& b) {
    for (const char* key : {"loss", "val_loss", "final_loss"}) {
      const std::vector<double> left = Values(a, key), right = Values(b, key);
      ASSERT_EQ(left.size(), right.size()) << key;
      ASSERT_FALSE(left.empty()) << key;
      for (size_t i = 0; i < left.size(); ++i) {
        EXPECT_NEAR(left[i], right[i], 1e-6 * right[i]) << key << " " << i;
      }
    }
  }
};

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_RANKS_TESTING_H_
