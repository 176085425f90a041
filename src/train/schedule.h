// The learning rate at each step: up from peak * start_share to the peak over the warm-up, then
// down to peak * end_share at the last step.
//
// With n steps and warm-up share w the peak is at step w n - 1 and the end at step n - 1 (steps
// from 0), as in PyTorch's OneCycleLR. Between two points a, b the rate at fraction f is
//   cosine   b + (a - b) (1 + cos(pi f)) / 2
//   linear   a + (b - a) f
//   constant cosine up to the peak, then the peak
#ifndef DENSEFORMER_TRAIN_SCHEDULE_H_
#define DENSEFORMER_TRAIN_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace denseformer {

enum class ScheduleShape { kCosine, kLinear, kConstant };

// In the order of the enumeration: "cosine", "linear", "constant".
const std::vector<std::string>& ScheduleNames();
ScheduleShape ParseSchedule(const std::string& name);  // throws kUsage with the nearest name

struct Schedule {
  ScheduleShape shape = ScheduleShape::kCosine;
  double peak = 1e-3;
  double warmup = 0.05;       // share of the steps
  double start_share = 0.01;  // of the peak, at step 0
  double end_share = 0.1;     // of the peak, at the last step
  int64_t steps = 1;

  // For 0 <= step < steps.
  double Rate(int64_t step) const;
};

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_SCHEDULE_H_
