#include "train/resume_checks.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "train/stored_options.h"

namespace denseformer {
namespace {

bool Forced(const TrainRequest& request, std::string_view key) {
  return std::any_of(
      request.forced.begin(), request.forced.end(),
      [key](const std::string& forced) { return FindOption("--force", forced).key == key; });
}

}  // namespace

bool CheckCourse(const TrainRequest& request, const RunState& state) {
  std::vector<std::string> refused;
  bool changed = false;
  for (const auto& [key, value] : CourseOf(request.options)) {
    const auto recorded = state.course.find(key);
    if (recorded == state.course.end() || recorded->second == value) continue;
    changed = true;
    if (Forced(request, key)) continue;
    refused.push_back(fmt::format("{} ({}, was {})", key, value, recorded->second));
  }
  if (!refused.empty()) {
    Throw(ErrorCode::kUsage,
          "resume: {}/{} is not what the checkpoint of step {} was trained with: {}; restore it, "
          "or allow each with --force KEY",
          request.run, kOptionsFile, state.step, Join(refused, ", "));
  }
  return changed;
}

void CheckData(const TrainRequest& request, const TrainData& data, RunState& state) {
  const std::string train = Fingerprint(data.train), validation = Fingerprint(data.validation);
  const bool changed = !state.train_data.empty() &&
                       (train != state.train_data || validation != state.validation_data);
  if (changed && !Forced(request, "data.path")) {
    Throw(ErrorCode::kUsage,
          "resume: the token files of {} are not those that the run began with; give the right "
          "--data, or allow it with --force data.path",
          request.options.data);
  }
  state.train_data = train;
  state.validation_data = validation;
}

}  // namespace denseformer
