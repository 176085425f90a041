#include "train/schedule.h"

#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/text.h"

namespace denseformer {

const std::vector<std::string>& ScheduleNames() {
  static const std::vector<std::string> names = {"cosine", "linear", "constant"};
  return names;
}

ScheduleShape ParseSchedule(const std::string& name) {
  for (size_t i = 0; i < ScheduleNames().size(); ++i) {
    if (ScheduleNames()[i] == name) return static_cast<ScheduleShape>(i);
  }
  Throw(ErrorCode::kUsage, "schedule: got '{}', expected one of {}{}", name,
        Join(ScheduleNames(), ", "), DidYouMean(name, ScheduleNames()));
}

double Schedule::Rate(int64_t step) const {
  DF_CHECK(step >= 0 && step < steps);
  // A warm-up of less than one step lies before step 0, and the descent begins there.
  const double at = static_cast<double>(step), last = static_cast<double>(steps) - 1;
  const double top = warmup * static_cast<double>(steps) - 1;
  const bool rising = at <= top;
  const double begin = rising ? 0 : top, end = rising ? top : last;
  const double fraction = end > begin ? (at - begin) / (end - begin) : 1;
  const double from = rising ? peak * start_share : peak;
  const double to = rising ? peak : peak * end_share;
  if (!rising && shape == ScheduleShape::kConstant) return peak;
  if (shape == ScheduleShape::kLinear) return from + (to - from) * fraction;
  return to + (from - to) * (1 + std::cos(std::numbers::pi * fraction)) / 2;
}

}  // namespace denseformer
