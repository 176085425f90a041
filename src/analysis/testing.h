// Helpers of the tests of analyses and reports: small trained runs.
#ifndef DENSEFORMER_ANALYSIS_TESTING_H_
#define DENSEFORMER_ANALYSIS_TESTING_H_

#include <gtest/gtest.h>

#include <string>

#include "chart/testing.h"
#include "train/testing.h"
#include "train/trainer.h"

namespace denseformer {

// Trained models of the preset `test` (4 blocks), with a snapshot of the weights every second step.
class TrainedRunTest : public TrainingTest {
 protected:
  std::string TrainRun(const std::string& name, const std::string& dwa, int64_t seed = 1,
                       int depth = 4, int64_t alphas_every = 2, const std::string& mixer = "static",
                       const std::string& streams = "r") const {
    TrainRequest request;
    request.run = scratch_ / name;
    request.options = PresetOptions("test");
    request.options.data = data_;
    request.options.precision = "fp32";
    request.options.model.dwa = dwa;
    request.options.model.n_layer = depth;
    request.options.model.mixer = mixer;
    request.options.model.streams = streams;
    request.options.seed = seed;
    request.options.steps = 6;
    request.options.eval_every = 2;
    request.options.eval_batches = 1;
    request.options.log_alphas_every = alphas_every;
    Train(request);
    return request.run;
  }
};

}  // namespace denseformer

#endif  // DENSEFORMER_ANALYSIS_TESTING_H_
